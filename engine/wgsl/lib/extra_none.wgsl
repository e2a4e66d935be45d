// A product by tiles has no workgroups apart from those of its tiles.

fn extra_work(at: vec3<u32>, local: u32) -> bool {
    return false;
}
