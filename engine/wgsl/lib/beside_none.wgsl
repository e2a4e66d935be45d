// A product by tiles has no workgroups besides those of its tiles.

fn beside(at: vec3<u32>, local: u32) -> bool {
    return false;
}
