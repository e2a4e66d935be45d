//! Tests which GPU the command uses.

use super::{ANSWER, QUESTION, command, json, outcome, refused, refuses, succeed, wglm};

#[test]
fn extended_devices_are_listed() {
    let all = succeed("devices");
    assert_eq!(all.out.matches("(default)\n").count(), 1, "{all:?}");
    let name = all.out.lines().next().unwrap().split(" (default").next().unwrap();
    let told = json(&succeed("devices --json").out);
    let used: Vec<_> = told.as_array().unwrap().iter().filter(|gpu| gpu["default"] == true).collect();
    assert!(used.len() == 1 && used[0]["name"] == name && used[0]["max_binding"].as_u64() > Some(0), "{told}");
    let done = outcome(command(["run", "-p", QUESTION, "--temp", "0", "--gpu", name]));
    assert_eq!(done.out, ANSWER, "{done:?}");
}

#[test]
fn extended_adapters_that_are_not_there() {
    for command in ["run -p hi", "chat", "bench"] {
        refuses(&format!("{command} --gpu nosuch"), "no GPU found named `nosuch`; available: `");
        refuses(&format!("{command} --backend nosuch"), "`nosuch`");
    }
    refuses("devices --backend nosuch", "`nosuch`");
    for (variable, words) in [
        ("WGPU_ADAPTER_NAME", "named `nosuch`"),
        ("WGPU_BACKEND", "`nosuch`"),
        ("WGPU_POWER_PREF", "expected low, high or none, found `nosuch`"),
    ] {
        let mut command = command(["run", "-p", "hi"]);
        command.env(variable, "nosuch");
        refused(variable, &outcome(command), words);
    }
    // An option takes precedence over its environment variable.
    let mut named = command(["devices", "--backend", "vulkan,metal,dx12"]);
    named.env("WGPU_BACKEND", "nosuch");
    let named = outcome(named);
    assert!(named.code == Some(0) && named.out.contains("(default)"), "{named:?}");
    if cfg!(target_os = "linux") {
        let mut none = command(["run", "-p", "hi", "--backend", "vulkan"]);
        none.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent");
        refused("no driver", &outcome(none), "install a Vulkan driver");
    }
}

/// The context that the error suggests fits the limits of the adapter.
#[test]
fn a_context_too_large_for_the_adapter() {
    let done = wglm("run hi -c 4000000000");
    refused("a huge context", &done, "error: a context of 4000000000 tokens needs ");
    let hint = done.err.lines().find_map(|line| line.strip_prefix("hint: try -c ")).unwrap();
    let bytes = json(&succeed(&format!("plan --json --cache-type f16 -c {hint}")).out)["memory"]["cache"].clone();
    let used = json(&succeed("devices --json").out).as_array().unwrap()[0]["max_binding"].as_u64().unwrap();
    let layers = 5; // the multi-token-prediction block has a cache too
    assert!(bytes.as_u64().unwrap() / layers <= used, "{hint}: {bytes}");
}

#[test]
fn an_unknown_backend_is_named() {
    let done = wglm("run -p hi --backend nosuch");
    assert!(done.err.contains("vulkan") && !done.err.contains("install"), "{}", done.err);
}
