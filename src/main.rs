//! The `collector` binary: arguments, the runtime, the service.

use std::process::ExitCode;

use tributary::app::cli;
use tributary::app::cli::Invocation;
use tributary::app::{allocator, open_files, service};

fn main() -> ExitCode {
    allocator::return_freed_memory();
    open_files::allow_as_many_as_possible();
    let options = match cli::parse_and_dispatch(std::env::args_os()) {
        Invocation::Run(options) => options,
        Invocation::Done(code) => return code,
    };
    match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let code = runtime.block_on(service::run(options));
            // Everything has ended or was given up. Dropping the runtime would wait for threads that block, on a name
            // server that does not answer, say, far beyond the deadline of the shutdown.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            eprintln!("Error: cannot start the runtime: {error}");
            ExitCode::FAILURE
        }
    }
}
