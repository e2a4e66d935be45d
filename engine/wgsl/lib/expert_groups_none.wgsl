// Every expert can be selected.

fn limit_experts(local: u32) {}
