use super::*;

#[test]
fn endpoints_split_into_host_and_port() {
    assert_eq!(split_host_port("a.b:4317"), Ok(("a.b", 4317)));
    assert_eq!(split_host_port("1.2.3.4:1"), Ok(("1.2.3.4", 1)));
    assert_eq!(split_host_port("[::1]:4317"), Ok(("::1", 4317)));
    for bad in ["", "host", "host:", ":4317", "::1", "host:99999", "host:x"] {
        assert!(split_host_port(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn refused_connection_names_the_address() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let connector = Connector::new("127.0.0.1", address.port(), None);
    let addresses = connector.resolve().await.unwrap();
    let error = connector.connect(&addresses).await.err().unwrap();
    assert!(error.0.contains(&address.to_string()), "{error}");
}
