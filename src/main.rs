//! The `wglm` command.

fn main() {}
