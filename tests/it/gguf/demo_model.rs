//! Compares the demonstration model with what Python's `gguf` package reads from it.

use wglm::Gguf;

fn demo() -> Gguf {
    Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/models/fable-10m-q4_0.gguf")).unwrap()
}

#[test]
fn metadata() {
    let gguf = demo();
    assert_eq!((gguf.version(), gguf.alignment(), gguf.file_bytes()), (3, 32, 6_235_552));
    assert_eq!((gguf.metadata().count(), gguf.tensors().len()), (44, 92));
    let keys: Vec<&str> = gguf.metadata().map(|(key, _)| key).collect();
    assert_eq!(keys[..2], ["general.architecture", "general.name"]);
    assert_eq!(keys[43], "general.file_type");
    assert_eq!(gguf.string("general.architecture").unwrap(), "deepseek2");
    assert_eq!(gguf.u32("deepseek2.block_count").unwrap(), 5);
    assert_eq!(gguf.u32("deepseek2.embedding_length").unwrap(), 256);
    assert_eq!(gguf.u32("deepseek2.attention.key_length").unwrap(), 160);
    assert_eq!(gguf.f32("deepseek2.rope.freq_base").unwrap(), 1e6);
    assert_eq!(gguf.f32("deepseek2.attention.layer_norm_rms_epsilon").unwrap(), 1e-5);
    assert_eq!(gguf.f32("deepseek2.expert_weights_scale").unwrap(), 1.8);
    assert!(gguf.bool("deepseek2.expert_weights_norm").unwrap());
    assert!(!gguf.bool("tokenizer.ggml.add_bos_token").unwrap());
    assert_eq!(gguf.u32("tokenizer.ggml.eos_token_id").unwrap(), 1101);
    assert_eq!(gguf.opt_u32("general.alignment").unwrap(), None);
    assert!(gguf.string("tokenizer.chat_template").unwrap().starts_with("{#- Renders a conversation"));
}

#[test]
fn vocabulary() {
    let gguf = demo();
    let tokens = gguf.strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), tokens[0], tokens[9], tokens[1101]), (2048, "!", "*", "<|endoftext|>"));
    let merges = gguf.strings("tokenizer.ggml.merges").unwrap();
    assert_eq!((merges.len(), merges[0], merges[7]), (845, "Ġ a", "Ċ Ċ"));
    let types = gguf.i32s("tokenizer.ggml.token_type").unwrap();
    assert_eq!((types.len(), types[0]), (2048, 1));
}

#[test]
fn tensors() {
    let gguf = demo();
    let expected: [(&str, &str, &[usize], usize, usize); 8] = [
        ("output.weight", "q6_k", &[256, 2048], 60_192, 430_080),
        ("output_norm.weight", "f32", &[256], 490_272, 1024),
        ("token_embd.weight", "q4_0", &[256, 2048], 491_296, 294_912),
        ("blk.0.attn_k_b.weight", "q8_0", &[64, 128, 4], 786_208, 34_816),
        ("blk.1.exp_probs_b.bias", "f32", &[8], 1_474_336, 32),
        ("blk.1.ffn_gate_shexp.weight", "q5_k", &[256, 256], 2_126_144, 45_056),
        ("blk.4.ffn_down_exps.weight", "q4_0", &[256, 256, 8], 5_120_928, 294_912),
        ("blk.4.nextn.shared_head_norm.weight", "f32", &[256], 6_234_528, 1024),
    ];
    for (name, ty, dims, offset, bytes) in expected {
        let tensor = gguf.require(name, dims).unwrap();
        assert_eq!((tensor.ty.name, tensor.offset, tensor.bytes), (ty, offset, bytes), "{name}");
        assert_eq!(gguf.read_all(tensor).unwrap().len(), bytes);
    }
    assert_eq!(gguf.tensors().next().unwrap().name, "output.weight");
    let first_bytes = |name: &str| gguf.read_all(gguf.tensor(name).unwrap()).unwrap()[..4].to_vec();
    assert_eq!(first_bytes("output.weight"), [0xd6, 0xfe, 0x97, 0x54]);
    assert_eq!(first_bytes("blk.1.exp_probs_b.bias"), [0xfc, 0x2a, 0x87, 0x3d]);
}

/// The file has no gaps, so the start of the next tensor confirms the size of each.
#[test]
fn tensors_follow_each_other() {
    let gguf = demo();
    let all: Vec<_> = gguf.tensors().collect();
    for pair in all.windows(2) {
        assert_eq!((pair[0].offset + pair[0].bytes).next_multiple_of(32), pair[1].offset, "{}", pair[1].name);
    }
    assert_eq!((all[91].offset + all[91].bytes) as u64, gguf.file_bytes());
}
