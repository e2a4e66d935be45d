//! The `wglm` command: run `wglm --help`.

fn main() -> std::process::ExitCode {
    wglm_command::main(demonstration())
}

/// The demonstration model, where it is built in.
fn demonstration() -> Option<&'static [u8]> {
    #[cfg(feature = "demo-model")]
    return Some(wglm::DEMO_MODEL);
    #[cfg(not(feature = "demo-model"))]
    return None;
}
