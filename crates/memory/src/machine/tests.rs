use super::*;

#[test]
fn cgroup_limit_of_any_ancestor_counts() {
    let root = tempfile::tempdir().unwrap();
    let set = |file: &str, limit: &str| {
        let path = root.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, limit).unwrap();
    };
    let limit = |groups: &str| cgroup_limit(root.path(), groups);
    let service = "0::/system.slice/tributary.service\n";
    assert_eq!(limit(service), None, "no groups at all");
    set("system.slice/tributary.service/memory.max", "1000\n");
    set("system.slice/memory.max", "max\n");
    assert_eq!(limit(service), Some(1000), "of the service itself");
    set("system.slice/memory.max", "900\n");
    assert_eq!(limit(service), Some(900), "of the slice that it is in");
    assert_eq!(limit("0::/user.slice\n"), None, "others do not count");
    // A container, with or without its own cgroup namespace.
    set("memory.max", "800\n");
    assert_eq!(limit("0::/\n"), Some(800));
    assert_eq!(limit("0::/kubepods/pod1/c1\n"), Some(800));
    assert_eq!(limit(""), Some(800));
    // cgroup v1: each controller has its own tree.
    let groups = "5:cpu,cpuacct:/a\n4:hugetlb,memory:/a\n1:name=systemd:/a\n0::/\n";
    set("memory/a/memory.limit_in_bytes", "700\n");
    set("memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_eq!(limit(groups), Some(700));
}
