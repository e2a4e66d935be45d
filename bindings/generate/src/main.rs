//! Writes the Swift and Python layers of the bindings: `uniffi-bindgen generate --library … --language swift`.

fn main() {
    uniffi::uniffi_bindgen_main();
}
