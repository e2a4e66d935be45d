#!/usr/bin/env python3
"""Write small synthetic `deepseek2` models and their golden logits into a folder.

usage: make_models.py OUT_DIR [NAME ...]      (all models if none is named; index.json is written only with all)

Each model covers a corner of the format that the trained demonstration model does not (see MODELS). For each:
  NAME.gguf             random weights, scaled so that activations and logits stay O(1)
  NAME.tokens.i32       token ids, little-endian i32
  NAME.logits.f32       reference.py's logits, little-endian f32 [positions, vocabulary]
  NAME.mtp_logits.f32   the same of the multi-token-prediction block, row i drafting token i+2, where there is one
and index.json says what each exercises, at which positions its logits stand, and how sharp a test it is.

Seeds are fixed. A model is drawn again until no routing decision is a near-tie and every option it exercises shows in
the logits (`examine`). K-quants have no encoder in the gguf package: their blocks are random bytes with chosen scales.
Needs: numpy gguf. Shapes are NumPy's, outermost first: the reverse of GGUF's.
"""
import fnmatch
import json
import pathlib
import sys
import zlib
from dataclasses import dataclass, field

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

from reference import SIGMOID, SOFTMAX, Model

MIN_MARGIN = 1e-3       # between the last expert chosen and the first left out
MIN_EFFECT = 1e-2       # relative L2 of the logits when one hyper-parameter is read wrongly
MAX_EVENNESS = 0.75     # of attention: 1 would be the same weight on every earlier token
MAX_TRIES = 2000


@dataclass
class Spec:
    """A model's shape, tensor types and omissions. None leaves a metadata key out."""

    about: str
    hidden: int
    heads: int
    nope: int
    rope: int
    value: int
    q_rank: int | None
    kv_rank: int
    vocab: int
    layers: int = 2
    mtp: int = 0
    dense: int = 1
    dense_ff: int = 64
    experts: int = 4
    top_k: int = 2
    groups: int | None = None
    used_groups: int | None = None
    expert_ff: int = 32
    shared: int = 1
    gating: int | None = SIGMOID
    norm: bool | None = True
    scale: float | None = 1.8
    bias: bool = True
    tied: bool = False
    fused_gate_up: bool = False
    unsplit_kv_b: bool = False
    legacy_keys: bool = False        # no *_mla keys: key_length and value_length are the per-head widths
    rope_base: float = 10000.0
    rope_factor: float | None = None
    yarn: dict[str, float] | None = None  # the factor is YaRN's, and these are its further keys, without their prefix
    context: int = 512
    attention_gain: float = 1.5      # about the standard deviation of the attention scores
    expert_gain: float = 2.0         # of the experts' down matrices
    matrix: T = T.F16                # the type of matrices that `types` does not name
    types: dict[str, T] = field(default_factory=dict)  # glob over tensor names -> type; the first match counts
    tokens: int = 24
    positions: list[int] | None = None  # None: all


MODELS = {
    "f32-odd": Spec(
        "f32 throughout; hidden 44, 3 heads, ranks 20 and 36, head widths 24+8 and 20, vocabulary 97",
        hidden=44, heads=3, nope=24, rope=8, value=20, q_rank=20, kv_rank=36, vocab=97, dense_ff=20, expert_ff=8, matrix=T.F32),
    "f16-tied": Spec(
        "f16, no output.weight (the embedding is the output); top 1 of 4, weights not normalised, rope base 1e6; one layer, hidden 160",
        hidden=160, heads=3, nope=24, rope=8, value=20, q_rank=36, kv_rank=20, vocab=96, layers=1, dense=0, expert_ff=8, top_k=1,
        norm=False, scale=2.0, tied=True, rope_base=1e6),
    "bf16-plain-q": Spec(
        "bf16, query not compressed (attn_q, attention.q_lora_rank = 0), head widths 40+16 and 36",
        hidden=44, heads=3, nope=40, rope=16, value=36, q_rank=0, kv_rank=36, vocab=96, dense_ff=36, expert_ff=12, matrix=T.BF16),
    "q8_0-kv-b": Spec(
        "q8_0; attn_kv_b not split into attn_k_b and attn_v_b; ranks 32 and 96, head widths 48+16 and 32; 6 experts top 3",
        hidden=64, heads=3, nope=48, rope=16, value=32, q_rank=32, kv_rank=96, vocab=96, dense_ff=32, experts=6, top_k=3,
        unsplit_kv_b=True, matrix=T.Q8_0, types={"*_exps.*": T.Q4_0}),
    "legacy-kv-b": Spec(
        "a file of before attn_k_b: attn_kv_b, no *_mla keys, head_count_kv = head_count, attention.q_lora_rank absent, "
        "no gating key (softmax), no expert_weights_norm (false) nor _scale (1); two shared experts; 5 heads",
        hidden=32, heads=5, nope=24, rope=8, value=32, q_rank=None, kv_rank=32, vocab=112, experts=6, top_k=2, shared=2,
        gating=None, norm=None, scale=None, bias=False, unsplit_kv_b=True, legacy_keys=True, matrix=T.Q8_0),
    "mixed-fused": Spec(
        "q4_0, q4_1, q5_0, q5_1 and q8_0 in one file; gate and up experts fused in ffn_gate_up_exps; head widths "
        "32+32 and 32; 6 experts top 4",
        hidden=64, heads=3, nope=32, rope=32, value=32, q_rank=32, kv_rank=64, vocab=96, layers=3, experts=6, top_k=4,
        fused_gate_up=True, matrix=T.Q4_0, types={
            "token_embd.*": T.Q5_1, "output.weight": T.Q8_0,
            "blk.0.attn_q_a.*": T.Q4_1, "blk.1.attn_q_a.*": T.Q5_0, "blk.2.attn_q_a.*": T.Q5_1,
            "blk.0.attn_q_b.*": T.Q5_0, "blk.1.attn_q_b.*": T.Q4_1, "blk.2.attn_q_b.*": T.Q8_0,
            "*.attn_kv_a_mqa.*": T.Q8_0, "*.attn_k_b.*": T.Q8_0, "*.attn_v_b.*": T.Q5_0, "blk.1.attn_output.*": T.Q5_1,
            "blk.0.ffn_gate.*": T.Q4_1, "blk.0.ffn_up.*": T.Q5_0, "blk.0.ffn_down.*": T.Q5_1,
            "blk.1.ffn_gate_up_exps.*": T.Q4_0, "blk.2.ffn_gate_up_exps.*": T.Q4_1,
            "blk.1.ffn_down_exps.*": T.Q5_0, "blk.2.ffn_down_exps.*": T.Q5_1,
            "blk.1.ffn_*_shexp.*": T.Q8_0, "blk.2.ffn_gate_shexp.*": T.Q5_1, "blk.2.ffn_up_shexp.*": T.Q4_1}),
    "k-quants": Spec(
        "q2_k to q6_k mixed; token_embd q4_k, output q6_k; gate and up of each layer in different types, experts included; hidden 256",
        hidden=256, heads=3, nope=24, rope=8, value=32, q_rank=32, kv_rank=32, vocab=96, dense_ff=32, matrix=T.Q8_0, types={
            "token_embd.*": T.Q4_K, "output.weight": T.Q6_K,
            "blk.0.attn_q_a.*": T.Q3_K, "blk.1.attn_q_a.*": T.Q6_K, "blk.0.attn_kv_a_mqa.*": T.Q5_K, "blk.1.attn_kv_a_mqa.*": T.Q2_K,
            "*.attn_k_b.*": T.F16, "*.attn_output.*": T.Q4_0,
            "blk.0.ffn_gate.*": T.Q4_K, "blk.0.ffn_up.*": T.Q5_K, "blk.0.ffn_down.*": T.Q8_0,
            "blk.1.ffn_gate_exps.*": T.Q2_K, "blk.1.ffn_up_exps.*": T.Q3_K, "blk.1.ffn_down_exps.*": T.Q4_0,
            "blk.1.ffn_gate_shexp.*": T.Q5_K, "blk.1.ffn_up_shexp.*": T.Q4_K, "blk.1.ffn_down_shexp.*": T.Q5_0}),
    "k-quants-down": Spec(
        "K-quants where the input is not the hidden state: attn_q_b, attn_output, ffn_down_exps and ffn_down_shexp; query rank 256, "
        "no leading dense layer",
        hidden=32, heads=4, nope=16, rope=16, value=64, q_rank=256, kv_rank=32, vocab=96, dense=0, experts=3, expert_ff=256, matrix=T.Q4_0,
        types={
            "token_embd.*": T.Q5_0, "output.weight": T.Q8_0, "*.attn_k_b.*": T.F16,
            "blk.0.attn_q_b.*": T.Q4_K, "blk.1.attn_q_b.*": T.Q2_K, "blk.0.attn_output.*": T.Q6_K, "blk.1.attn_output.*": T.Q5_K,
            "blk.0.ffn_down_exps.*": T.Q2_K, "blk.1.ffn_down_exps.*": T.Q4_K,
            "blk.0.ffn_down_shexp.*": T.Q6_K, "blk.1.ffn_down_shexp.*": T.Q3_K}),
    "k-embed": Spec(
        "token_embd q6_k and tied: the same K-quant serves row look-up and projection; one layer, dense; 5 heads",
        hidden=256, heads=5, nope=24, rope=8, value=12, q_rank=20, kv_rank=36, vocab=110, layers=1, dense_ff=32, tied=True,
        types={"token_embd.*": T.Q6_K, "*.attn_q_a.*": T.Q2_K, "*.attn_kv_a_mqa.*": T.Q3_K, "*.ffn_gate.*": T.Q2_K,
               "*.ffn_up.*": T.Q6_K, "*.ffn_down.*": T.Q8_0}),
    "tables": Spec(
        "formats whose values are looked up in tables, mixed: iq2_xxs to iq4_xs and mxfp4; gate and up of each layer in different "
        "types, experts included; hidden 256",
        hidden=256, heads=3, nope=24, rope=8, value=32, q_rank=32, kv_rank=32, vocab=96, dense_ff=32, matrix=T.IQ4_NL, types={
            "token_embd.*": T.IQ3_S, "output.weight": T.IQ4_XS,
            "blk.0.attn_q_a.*": T.IQ2_XS, "blk.1.attn_q_a.*": T.IQ2_S, "blk.0.attn_kv_a_mqa.*": T.IQ3_XXS,
            "blk.1.attn_kv_a_mqa.*": T.IQ2_XXS, "*.attn_k_b.*": T.F16, "*.attn_output.*": T.MXFP4,
            "blk.0.ffn_gate.*": T.IQ3_XXS, "blk.0.ffn_up.*": T.IQ3_S, "blk.0.ffn_down.*": T.IQ4_NL,
            "blk.1.ffn_gate_exps.*": T.IQ2_XXS, "blk.1.ffn_up_exps.*": T.IQ2_S, "blk.1.ffn_down_exps.*": T.MXFP4,
            "blk.1.ffn_gate_shexp.*": T.IQ4_XS, "blk.1.ffn_up_shexp.*": T.IQ2_XS, "blk.1.ffn_down_shexp.*": T.IQ4_NL}),
    "tables-down": Spec(
        "the same where the input is not the hidden state: attn_q_b, attn_output, ffn_down_exps and ffn_down_shexp; query rank 256, "
        "no leading dense layer",
        hidden=32, heads=4, nope=16, rope=16, value=64, q_rank=256, kv_rank=32, vocab=96, dense=0, experts=3, expert_ff=256,
        matrix=T.IQ4_NL, types={
            "token_embd.*": T.IQ4_NL, "output.weight": T.MXFP4, "*.attn_k_b.*": T.F16,
            "blk.0.attn_q_b.*": T.IQ2_XS, "blk.1.attn_q_b.*": T.IQ3_S, "blk.0.attn_output.*": T.IQ2_XXS, "blk.1.attn_output.*": T.IQ4_XS,
            "*.ffn_gate_exps.*": T.MXFP4, "blk.0.ffn_down_exps.*": T.IQ3_XXS, "blk.1.ffn_down_exps.*": T.IQ2_S,
            "blk.0.ffn_down_shexp.*": T.IQ4_XS, "blk.1.ffn_down_shexp.*": T.IQ2_XXS}),
    "softmax-raw": Spec(
        "softmax gating by a missing key, expert_weights_norm false, expert_weights_scale 0 (means 1), no exp_probs_b; 64 experts top 3",
        hidden=32, heads=3, nope=24, rope=8, value=20, q_rank=20, kv_rank=36, vocab=96, dense_ff=32, experts=64, top_k=3,
        gating=None, norm=False, scale=0.0, bias=False, types={"*_exps.*": T.Q4_0}),
    "softmax-norm": Spec(
        "softmax gating by a missing key, weights normalised and scaled, with a bias; 20 experts top 6",
        hidden=44, heads=3, nope=24, rope=8, value=20, q_rank=36, kv_rank=20, vocab=100, dense_ff=28, experts=20, top_k=6, expert_ff=12,
        gating=None, norm=True, scale=1.5),
    "two-shared": Spec(
        "two shared experts (one FFN of twice the width), two leading dense layers of three; rope base 1e6",
        hidden=52, heads=3, nope=24, rope=8, value=20, q_rank=20, kv_rank=36, vocab=96, layers=3, dense=2, dense_ff=28, expert_ff=8,
        shared=2, rope_base=1e6, types={"*_exps.*": T.BF16}),
    "no-shared": Spec(
        "no shared expert, no leading dense layer; softmax named by the key; 7 heads; 16 experts top 4",
        hidden=44, heads=7, nope=24, rope=8, value=20, q_rank=20, kv_rank=20, vocab=96, dense=0, experts=16, top_k=4, expert_ff=8,
        shared=0, gating=SOFTMAX, norm=False, scale=2.5),
    "mtp": Spec(
        "a multi-token-prediction block after the trunk (nextn_predict_layers 1), which the logits must ignore",
        hidden=44, heads=3, nope=24, rope=8, value=20, q_rank=20, kv_rank=36, vocab=96, dense_ff=28, mtp=1, top_k=2, expert_ff=12),
    "odd-types": Spec(
        "types seldom seen where they stand: router f16 and q8_0, attn_k_b q4_0, attn_v_b q6_k, token_embd bf16, q_a f32, "
        "norms f16 and bf16, bias f16; kv rank 256",
        hidden=64, heads=3, nope=32, rope=16, value=20, q_rank=32, kv_rank=256, vocab=96, dense=0, top_k=3,
        matrix=T.Q8_0, types={
            "blk.0.ffn_gate_inp.*": T.F16, "blk.1.ffn_gate_inp.*": T.Q8_0, "*.exp_probs_b.bias": T.F16,
            "blk.1.*norm.weight": T.BF16, "*norm.weight": T.F16, "token_embd.*": T.BF16, "output.weight": T.Q5_1,
            "*.attn_k_b.*": T.Q4_0, "*.attn_v_b.*": T.Q6_K, "*.attn_kv_a_mqa.*": T.Q4_1, "*.attn_q_a.*": T.F32, "*.attn_q_b.*": T.BF16,
            "*.attn_output.*": T.F16, "*.ffn_gate_exps.*": T.Q5_1, "*.ffn_up_exps.*": T.Q4_0, "*.ffn_down_exps.*": T.Q8_0}),
    "long": Spec(
        "3000 tokens; sharp attention, so that far tokens count",
        hidden=64, heads=3, nope=24, rope=8, value=20, q_rank=36, kv_rank=36, vocab=128, context=4096, attention_gain=3.0,
        dense_ff=32, expert_ff=16,
        tokens=3000, positions=[0, 1, 63, 255, 256, 511, 1023, 1024, 1535, 2047, 2048, 2559, 2998, 2999]),
    "rope-linear": Spec(
        "rope.scaling.type linear, rope.scaling.factor 2: positions are halved, nothing else changes; one layer, hidden 96",
        hidden=96, heads=3, nope=24, rope=16, value=20, q_rank=36, kv_rank=36, vocab=96, layers=1, dense=0, expert_ff=8, rope_factor=2.0,
        tokens=40, attention_gain=2.0),
    "yarn": Spec(
        "YaRN by 40 from 32 tokens with its scale in the scores (as DeepSeek-V2-Lite); query not compressed, no q_lora_rank; softmax; "
        "two shared experts; 4 layers, 96 tokens",
        hidden=52, heads=3, nope=24, rope=16, value=20, q_rank=None, kv_rank=36, vocab=96, layers=4, dense_ff=28, experts=8, top_k=3,
        expert_ff=8, shared=2, gating=SOFTMAX, norm=None, scale=None, bias=False, rope_factor=40.0, tokens=96, attention_gain=2.0,
        yarn={"original_context_length": 32, "yarn_log_multiplier": 0.0707}),
    "yarn-magnitude": Spec(
        "YaRN by 4 from 128 tokens without a log multiplier, so that rotated values are scaled; attn_factor and both betas given; "
        "compressed query; one layer",
        hidden=96, heads=3, nope=24, rope=32, value=20, q_rank=36, kv_rank=36, vocab=96, layers=1, dense=0, expert_ff=8, rope_factor=4.0,
        tokens=64, attention_gain=2.0,
        yarn={"original_context_length": 128, "attn_factor": 1.25, "yarn_beta_fast": 8.0, "yarn_beta_slow": 0.5}),
    "experts-48": Spec(
        "GLM-4.7-Flash-REAP in miniature: 48 experts top 4, sigmoid with a bias, normalised, scale 1.8, one shared expert, one dense layer",
        hidden=52, heads=5, nope=24, rope=8, value=20, q_rank=36, kv_rank=36, vocab=96, layers=3, dense_ff=28, experts=48, top_k=4,
        expert_ff=8, rope_base=1e6),
    "dense-tied": Spec(
        "Youtu-LLM in miniature: dense in all layers (leading_dense_block_count = block_count, no expert_count), tied embeddings, "
        "compressed query, rope base 1.6e6",
        hidden=64, heads=4, nope=32, rope=16, value=32, q_rank=96, kv_rank=32, vocab=128, layers=4, dense=4, dense_ff=96, experts=0,
        shared=0, gating=None, norm=None, scale=None, bias=False, tied=True, rope_base=1.6e6, matrix=T.Q8_0),
    "mtp-plain-q": Spec(
        "GigaChat3.1 in miniature: a multi-token-prediction block whose query is not compressed either; sigmoid, normalised, scale 2.5; "
        "8 experts top 4",
        hidden=64, heads=4, nope=32, rope=32, value=48, q_rank=None, kv_rank=64, vocab=128, layers=3, dense_ff=96, mtp=1, experts=8,
        top_k=4, scale=2.5, rope_base=1e5, matrix=T.Q8_0),
    "groups": Spec(
        "DeepSeek-V3 in miniature: 32 experts in 8 groups of which 4 are used, top 6, sigmoid with a bias, normalised, scale 2.5; one "
        "shared expert, YaRN by 40; f32",
        hidden=36, heads=4, nope=24, rope=16, value=24, q_rank=36, kv_rank=36, vocab=96, layers=3, dense_ff=28, experts=32, top_k=6,
        groups=8, used_groups=4, expert_ff=8, mtp=1, scale=2.5, rope_factor=40.0, tokens=48, attention_gain=2.0, matrix=T.F32,
        yarn={"original_context_length": 32, "yarn_log_multiplier": 0.0707}),
    "groups-softmax": Spec(
        "softmax named by the key, 18 experts in 3 groups of which 2 are used, top 5, weights not normalised, no bias; no leading "
        "dense layer; q8_0",
        hidden=64, heads=3, nope=32, rope=32, value=32, q_rank=32, kv_rank=32, vocab=96, dense=0, experts=18, top_k=5, groups=3,
        used_groups=2, expert_ff=32, gating=SOFTMAX, norm=False, scale=2.5, bias=False, matrix=T.Q8_0),
    "experts-160": Spec(
        "160 experts top 6, weights not normalised, scale 2.5; expert gate and up q4_0, down f16 with rows of 8",
        hidden=32, heads=3, nope=24, rope=8, value=20, q_rank=20, kv_rank=20, vocab=96, dense_ff=32, experts=160, top_k=6, expert_ff=8,
        norm=False, scale=2.5, expert_gain=0.7, types={"*.ffn_gate_exps.*": T.Q4_0, "*.ffn_up_exps.*": T.Q4_0}),
}

# Where blocks of formats that the gguf package does not make keep their f16 scales: offset of d, offset of dmin, and the
# dmin/d that centres uniformly random quants on zero (with no dmin the type is centred by itself, and d may be negative).
SCALES = {t: (0, None, 0) for t in (T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS, T.IQ3_S, T.IQ4_NL, T.IQ4_XS)} | {
    T.Q2_K: (80, 82, 1.5), T.Q3_K: (108, None, 0), T.Q4_K: (0, 2, 7.5), T.Q5_K: (0, 2, 15.5), T.Q6_K: (208, None, 0)}


def random_blocks(rng, shape, std, qtype):
    """Random blocks whose weights have about this standard deviation: bytes [..., row bytes]."""
    d_at, dmin_at, ratio = SCALES[qtype]
    values, size = gguf.GGML_QUANT_SIZES[qtype]
    blocks = rng.integers(0, 256, (int(np.prod(shape)) // values, size), dtype=np.uint8)

    def set_scales(d):
        blocks[:, d_at:d_at + 2] = d.astype("<f2")[:, None].view(np.uint8)
        if dmin_at is not None:
            blocks[:, dmin_at:dmin_at + 2] = (d * ratio).astype("<f2")[:, None].view(np.uint8)

    set_scales(np.ones(len(blocks)))
    d = std / gguf.dequantize(blocks, qtype).std() * rng.uniform(0.7, 1.3, len(blocks))
    set_scales(d if dmin_at is not None else d * rng.choice([-1, 1], len(blocks)))
    return blocks.reshape(*shape[:-1], -1)


def encode(rng, shape, std, mean, qtype):
    """A random tensor in a type, as GGUFWriter.add_tensor wants it."""
    if qtype in SCALES:
        return random_blocks(rng, shape, std, qtype)
    values = (mean + std * rng.standard_normal(shape)).astype(np.float32)
    return gguf.quantize(values, qtype)


def tensors(s):
    """Every tensor of a model: name -> (shape, gain). A matrix's entries have standard deviation gain / sqrt(inputs)."""
    d, key = s.hidden, s.nope + s.rope
    out = {"token_embd.weight": ((s.vocab, d), 0.5 if s.tied else d ** 0.5), "output_norm.weight": ((d,), 1)}
    if not s.tied:
        out["output.weight"] = ((s.vocab, d), 2)
    for i in range(s.layers + s.mtp):
        blk = {"attn_norm": ((d,), 1), "ffn_norm": ((d,), 1), "attn_kv_a_norm": ((s.kv_rank,), 1),
               "attn_kv_a_mqa": ((s.kv_rank + s.rope, d), 1), "attn_output": ((d, s.heads * s.value), 1)}
        if s.q_rank:
            blk |= {"attn_q_a": ((s.q_rank, d), 1), "attn_q_a_norm": ((s.q_rank,), 1),
                    "attn_q_b": ((s.heads * key, s.q_rank), s.attention_gain)}
        else:
            blk |= {"attn_q": ((s.heads * key, d), s.attention_gain)}
        if s.unsplit_kv_b:
            blk |= {"attn_kv_b": ((s.heads * (s.nope + s.value), s.kv_rank), 1)}
        else:
            # k_b's rows lie along nope, but what it sums over in a key is the latent: hence the gain.
            blk |= {"attn_k_b": ((s.heads, s.kv_rank, s.nope), (s.nope / s.kv_rank) ** 0.5),
                    "attn_v_b": ((s.heads, s.value, s.kv_rank), 1)}
        if i < s.dense:
            blk |= {"ffn_gate": ((s.dense_ff, d), 1.5), "ffn_up": ((s.dense_ff, d), 1), "ffn_down": ((d, s.dense_ff), 1)}
        else:
            e, ff, wide = s.experts, s.expert_ff, s.expert_ff * s.shared
            blk |= {"ffn_gate_inp": ((e, d), 1.2), "ffn_down_exps": ((e, d, ff), s.expert_gain)}
            if s.fused_gate_up:
                blk |= {"ffn_gate_up_exps": ((e, 2 * ff, d), 1.2)}
            else:
                blk |= {"ffn_gate_exps": ((e, ff, d), 1.5), "ffn_up_exps": ((e, ff, d), 1)}
            if s.shared:
                blk |= {"ffn_gate_shexp": ((wide, d), 1.5), "ffn_up_shexp": ((wide, d), 1), "ffn_down_shexp": ((d, wide), 1)}
        if i >= s.layers:
            blk |= {"nextn.eh_proj": ((d, 2 * d), 1), "nextn.enorm": ((d,), 1), "nextn.hnorm": ((d,), 1), "nextn.shared_head_norm": ((d,), 1)}
        out |= {f"blk.{i}.{name}.weight": entry for name, entry in blk.items()}
        if s.bias and i >= s.dense:
            out[f"blk.{i}.exp_probs_b.bias"] = ((s.experts,), 1)
    return out


def tensor_type(s, name, shape):
    for pattern, qtype in s.types.items():
        if fnmatch.fnmatch(name, pattern):
            return qtype
    return T.F32 if len(shape) == 1 or "ffn_gate_inp" in name else s.matrix


def write_metadata(w, s, name):
    w.add_name(f"wglm test model {name}")
    w.add_description(s.about)
    w.add_block_count(s.layers + s.mtp)
    if s.mtp:
        w.add_nextn_predict_layers(s.mtp)
    w.add_context_length(s.context)
    w.add_embedding_length(s.hidden)
    w.add_feed_forward_length(s.dense_ff)
    w.add_vocab_size(s.vocab)
    w.add_head_count(s.heads)
    w.add_layer_norm_rms_eps(1e-5)
    if s.q_rank is not None:
        w.add_q_lora_rank(s.q_rank)
    w.add_kv_lora_rank(s.kv_rank)
    if s.legacy_keys:
        w.add_head_count_kv(s.heads)
        w.add_key_length(s.nope + s.rope)
        w.add_value_length(s.value)
    else:
        w.add_head_count_kv(1)
        w.add_key_length(s.kv_rank + s.rope)
        w.add_value_length(s.kv_rank)
        w.add_key_length_mla(s.nope + s.rope)
        w.add_value_length_mla(s.value)
    w.add_rope_dimension_count(s.rope)
    w.add_rope_freq_base(s.rope_base)
    if s.rope_factor is not None:
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN if s.yarn else gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(s.rope_factor)
    for key, value in (s.yarn or {}).items():
        add = w.add_uint32 if key == "original_context_length" else w.add_float32
        add(f"deepseek2.rope.scaling.{key}", value)
    w.add_leading_dense_block_count(s.dense)
    if s.experts:
        w.add_expert_count(s.experts)
        w.add_expert_used_count(s.top_k)
    if s.groups is not None:
        w.add_expert_group_count(s.groups)
        w.add_expert_group_used_count(s.used_groups)
    w.add_expert_shared_count(s.shared)
    w.add_expert_feed_forward_length(s.expert_ff)
    if s.gating is not None:
        w.add_expert_gating_func(gguf.ExpertGatingFuncType(s.gating))
    if s.norm is not None:
        w.add_expert_weights_norm(s.norm)
    if s.scale is not None:
        w.add_expert_weights_scale(s.scale)
    w.add_quantization_version(2)
    w.add_tokenizer_model("none")


def write_model(path, s, name, rng):
    w = gguf.GGUFWriter(path, "deepseek2")
    write_metadata(w, s, name)
    for tensor, (shape, gain) in tensors(s).items():
        qtype = tensor_type(s, tensor, shape)
        if tensor.endswith("norm.weight"):
            data = encode(rng, shape, 0.2, 1.0, qtype)
        elif tensor.endswith("bias"):
            data = encode(rng, shape, 0.1, 0.0, qtype)
        else:
            data = encode(rng, shape, gain / shape[-1] ** 0.5, 0.0, qtype)
        w.add_tensor(tensor, data, raw_dtype=qtype)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def misreadings(s):
    """Metadata that, read wrongly, must change the logits: what -> the wrong values."""
    if s.rope_factor is not None:
        yield "rope.scaling.factor = 1", {"rope.scaling.factor": 1.0}
    for key, value in (s.yarn or {}).items():
        yield f"rope.scaling.{key} * 2", {f"rope.scaling.{key}": 2 * value}
    yield "rope.freq_base * 2", {"rope.freq_base": 2 * s.rope_base}
    if s.dense < s.layers:
        gating = SOFTMAX if s.gating == SIGMOID else SIGMOID
        yield f"expert_gating_func = {gating}", {"expert_gating_func": gating}
        yield f"expert_weights_norm = {not s.norm}", {"expert_weights_norm": not s.norm}
        if s.scale:
            yield "expert_weights_scale = 1", {"expert_weights_scale": 1.0}
    if s.groups:
        yield "expert_group_count = 1", {"expert_group_count": 1}
        yield f"expert_group_used_count = {s.used_groups - 1}", {"expert_group_used_count": s.used_groups - 1}
        yield f"expert_group_used_count = {s.used_groups + 1}", {"expert_group_used_count": s.used_groups + 1}


def difference(got, want):
    """Relative L2."""
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def evenness(p):
    """How even attention weights [T, T] are: the mean of exp(entropy) / count over the later half of the rows."""
    entropy = -np.sum(p * np.log(np.maximum(p, 1e-300)), axis=-1)
    share = np.exp(entropy) / np.arange(1, len(p) + 1)
    return share[len(p) // 2:].mean()


def gap(scores, chosen):
    """The gap between the last of the best and the first that is left out, [T, N] -> [T]."""
    order = np.sort(scores, axis=-1)[:, ::-1]
    return order[:, chosen - 1] - order[:, chosen]


def margins(s, choice, groups):
    """The smaller of the gaps between experts and between their groups, if there are any, at each position."""
    margin = gap(choice, s.top_k)
    return np.minimum(margin, gap(groups, s.used_groups)) if s.groups else margin


def routing(s, score, choice, groups, rows):
    """(smallest margin over these rows, number of experts used, whether the bias changed any choice); without it, `score`."""
    margin = margins(s, choice, groups)[rows].min()
    chosen, plain = (np.sort(np.argsort(-x, axis=-1)[:, :s.top_k]) for x in (choice, score))
    return margin, len(np.unique(chosen)), bool(np.any(chosen != plain))


def examine(path, s, tokens, positions):
    """Goldens and figures of a written model, or the reason to draw another: (logits, mtp logits, figures) or text."""
    seen = {"attention": [], "residual": [], "score": {}, "ungrouped": {}, "choice": {}}

    def probe(name, layer, array):
        if name == "attention":
            seen[name].append(evenness(array))
        elif name == "residual":
            seen[name].append(np.sqrt(np.mean(array ** 2)))
        else:
            seen[name][layer] = array

    model = Model(path, probe=probe)
    logits = model.logits(tokens, positions)
    mtp = model.mtp_logits(tokens, list(range(len(tokens) - 1))) if s.mtp else None
    figures = {"logits_rms": np.sqrt(np.mean(logits ** 2)), "residual_rms": seen["residual"][:s.layers],
               "attention_evenness": np.mean(seen["attention"])}
    if not 0.5 < figures["logits_rms"] < 5 or max(seen["residual"]) > 8:
        return f"magnitudes {figures}"
    if figures["attention_evenness"] > MAX_EVENNESS:
        return f"attention is nearly uniform: {figures['attention_evenness']:.2f}"

    groups = {layer: model.group_scores(scores) for layer, scores in seen["ungrouped"].items()}
    routes = []
    for layer, choice in seen["choice"].items():
        # In the last layer a token's routing touches only its own logits.
        rows = positions if layer == s.layers - 1 and not s.mtp else slice(None)
        routes.append(routing(s, model.in_used_groups(seen["score"][layer]), choice, groups[layer], rows))
    if routes:
        margin, used, moved = min(r[0] for r in routes), min(r[1] for r in routes), all(r[2] for r in routes)
        if margin < MIN_MARGIN:
            return f"routing near-tie: {margin:.1e}"
        if used < min(s.experts, 2 * s.top_k):
            return f"only {used} experts used"
        if s.bias and not moved:
            return "the bias changes no choice"
        figures |= {"routing_margin": margin, "experts_used": used}
        layers = [margins(s, choice, groups[layer]) for layer, choice in seen["choice"].items() if layer < s.layers]
        figures["routing_margins"] = [min(layer[position] for layer in layers) for position in positions]

    effects = {}
    for what, override in misreadings(s):
        wrong = Model(path, override={f"deepseek2.{k}": v for k, v in override.items()}).logits(tokens, positions)
        effects[what] = difference(wrong, logits)
        if effects[what] < MIN_EFFECT:
            return f"{what} changes the logits by only {effects[what]:.1e}"
    return logits, mtp, figures | {"misread": effects}


def rounded(x):
    """Three significant digits, for index.json."""
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [rounded(v) for v in x]
    return x if isinstance(x, int) else float(f"{x:.3g}")


def make(out, name, s):
    """Write one model and its goldens; returns its entry for index.json."""
    positions = s.positions or list(range(s.tokens))
    path = out / f"{name}.gguf"
    for attempt in range(MAX_TRIES):
        rng = np.random.default_rng([zlib.crc32(name.encode()), attempt])
        tokens = rng.integers(0, s.vocab, s.tokens).astype("<i4")
        write_model(path, s, name, rng)
        result = examine(path, s, tokens, positions)
        if not isinstance(result, str):
            break
    else:
        raise RuntimeError(f"{name}: no acceptable draw in {MAX_TRIES}; the last: {result}")
    logits, mtp, figures = result
    tokens.tofile(out / f"{name}.tokens.i32")
    logits.astype("<f4").tofile(out / f"{name}.logits.f32")
    entry = {"name": name, "about": s.about, "vocab": s.vocab, "tokens": s.tokens, "positions": positions,
             "types": sorted({tensor_type(s, n, shape).name.lower() for n, (shape, _) in tensors(s).items()})}
    if mtp is not None:
        mtp.astype("<f4").tofile(out / f"{name}.mtp_logits.f32")
        entry["mtp_positions"] = list(range(s.tokens - 1))
    print(f"{name:14} draw {attempt:4}  {path.stat().st_size / 1000:6.1f} kB  {rounded(figures)}", flush=True)
    return entry | {"figures": rounded(figures)}


INDEX_ABOUT = (
    "Synthetic models and golden logits by tests/reference (see its README). logits.f32: little-endian f32 "
    "[positions, vocab]; mtp_logits.f32: [mtp_positions, vocab], row i drafting token i+2. figures: routing_margin is the "
    "smallest gap between an expert chosen and one left out, routing_margins the smallest in any layer at each position; misread is the relative L2 error of the logits when one "
    "hyper-parameter is read wrongly, so a test's tolerance must stay well below it.")


def write_index(path, entries):
    """Readable JSON: one line for each value of each entry."""
    body = ",\n".join("  {\n" + ",\n".join(f"   {json.dumps(k)}: {json.dumps(v)}" for k, v in e.items()) + "\n  }" for e in entries)
    path.write_text(f'{{\n "about": {json.dumps(INDEX_ABOUT)},\n "models": [\n{body}\n ]\n}}\n')


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out, names = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(MODELS)
    out.mkdir(parents=True, exist_ok=True)
    entries = [make(out, name, MODELS[name]) for name in names]
    if not sys.argv[2:]:
        write_index(out / "index.json", entries)


if __name__ == "__main__":
    main()
