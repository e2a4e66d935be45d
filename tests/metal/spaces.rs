//! Checks Metal sources with address spaces as types that do not mix.

use crate::clang::Workshop;
use crate::translate::Text;
use crate::variants::all;

/// The number of kernels in one file.
const BATCH: usize = 32;
/// Unlike Metal, C++ cannot copy a structure from one address space to another.
const COPIES: [&str; 2] = ["error: no matching constructor for initialization of", "error: no viable overloaded '='"];

/// Clang's complaints about kernels, except those about valid Metal.
fn errors(shop: &Workshop, name: &str, texts: &[Text]) -> Vec<String> {
    let told = shop.check(name, texts).err().unwrap_or_default();
    let meant = |line: &&str| line.contains("error: ") && !COPIES.iter().any(|copy| line.contains(copy));
    told.lines().filter(meant).map(str::to_owned).collect()
}

#[test]
fn extended_address_spaces_do_not_mix() {
    let Some(shop) = Workshop::open() else { return };
    let mut texts: Vec<Text> = all().values().map(|shader| Text::of(shader).unwrap()).collect();
    texts.sort_by(|a, b| a.label.cmp(&b.label));
    let errors: Vec<String> = texts.chunks(BATCH).flat_map(|texts| errors(&shop, "spaces", texts)).collect();
    assert!(errors.is_empty(), "{} errors:\n{}", errors.len(), errors.join("\n"));
}

#[test]
fn mixed_address_spaces_are_detected() {
    let Some(shop) = Workshop::open() else { return };
    let shared = |shader: &&crate::emit::Shader| shader.workgroup_bytes > 0;
    let first = all().values().filter(shared).min_by(|a, b| a.label.cmp(&b.label)).unwrap();
    let mut text = Text::of(first).unwrap();
    assert_eq!(errors(&shop, "mixed", &[text.clone()]), [""; 0], "{}", text.label);
    // The last is the kernel's own memory, which it passes to its functions, some of which are never called.
    let last = text.msl.rfind("threadgroup ").unwrap();
    text.msl.replace_range(last..last + "threadgroup".len(), "device");
    assert!(!errors(&shop, "mixed", &[text]).is_empty());
}
