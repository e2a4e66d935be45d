//! Generates a reply.

fn main() {}
