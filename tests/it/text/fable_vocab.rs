//! The vocabulary of the demonstration model.

use wglm::Gguf;
use wglm::text::Vocab;

/// Read from the file.
pub fn fable_vocab() -> Vocab {
    let file = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/models/fable-10m-q4_0.gguf")).unwrap();
    Vocab::read(&file).unwrap().unwrap()
}
