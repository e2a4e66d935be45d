//! The `wglm` command: run `wglm --help`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
