#!/usr/bin/env python3
"""Logits of a `deepseek2` GGUF (GLM-4.7-Flash, DeepSeek-V2/V3 shapes) in float64: the yardstick for the engine's tests.

usage: reference.py MODEL.gguf TOKENS.i32 OUT.f32 [--positions 0,5,9] [--mtp] [--drafts N]

TOKENS is raw little-endian i32; OUT is raw little-endian f32 [positions, vocabulary], every position unless some are
named. With --mtp the logits are those of the multi-token-prediction block: row i drafts token i+2. With --drafts N there
are N rows for each position: each further one drafts the token behind the draft before it, the likeliest one.

It computes each head's keys and values out in full instead of absorbing k_b and v_b into the query and the output,
so that it shares no shortcut with the engine. Weights are dequantised by the `gguf` package.
Needs: numpy gguf. Shapes in comments are NumPy's, outermost first; T tokens, D hidden, H heads, R kv rank, E experts.
"""
import argparse
import sys

import gguf
import numpy as np

SOFTMAX, SIGMOID = 1, 2
MIN_WEIGHT_SUM = 6.103515625e-5  # the smallest normal f16: llama.cpp's lower clamp before it divides by the sum
OUTPUT_ROWS_AT_ONCE = 8192       # bounds memory where the vocabulary is large


class Config:
    """The hyper-parameters, as the file's metadata gives them."""

    def __init__(self, fields, vocab):
        def get(key, *default):
            """A value under `deepseek2.`; without a default the key is required."""
            return fields.get(f"deepseek2.{key}", *default) if default else fields[f"deepseek2.{key}"]

        self.mtp_blocks = get("nextn_predict_layers", 0)
        self.layers = get("block_count") - self.mtp_blocks  # the trunk; the MTP blocks follow it
        self.eps = get("attention.layer_norm_rms_epsilon")
        self.heads = get("attention.head_count")
        self.q_rank = get("attention.q_lora_rank", 0)  # 0: the query is not compressed
        self.kv_rank = get("attention.kv_lora_rank")
        # Files older than attn_k_b/attn_v_b have no *_mla keys: there, key_length and value_length are the per-head widths.
        key = get("attention.key_length_mla", 0) or get("attention.key_length")
        self.value = get("attention.value_length_mla", 0) or get("attention.value_length")
        self.rope = get("rope.dimension_count")
        self.nope = key - self.rope
        self.rope_base = get("rope.freq_base", 10000.0)
        scaling = get("rope.scaling.type", "linear")
        if scaling not in ("none", "linear", "yarn"):
            raise ValueError(f"rope scaling {scaling!r} is not implemented")
        factor = get("rope.scaling.factor", get("rope.scale_linear", 0.0))
        self.rope_factor = (factor if scaling != "none" else 0.0) or 1.0
        # What rotated values are multiplied with, and what scores are besides 1 / sqrt(key width).
        self.rope_magnitude = get("rope.scaling.attn_factor", 1.0)
        self.log_multiplier = 0.0
        self.yarn = None
        if scaling == "yarn":
            original = get("rope.scaling.original_context_length", 0) or get("context_length")
            self.yarn = (original, get("rope.scaling.yarn_beta_fast", 32.0), get("rope.scaling.yarn_beta_slow", 1.0))
            self.log_multiplier = get("rope.scaling.yarn_log_multiplier", 0.0)  # 0.1 * mscale_all_dim
            if not self.log_multiplier:
                self.rope_magnitude *= 1 + 0.1 * np.log(self.rope_factor)

        self.dense_layers = get("leading_dense_block_count", 0)
        self.experts = get("expert_count", 0)
        self.top_k = get("expert_used_count", 0)
        self.shared = get("expert_shared_count", 0)
        self.norm_weights = get("expert_weights_norm", False)
        self.scale_weights = get("expert_weights_scale", 0.0) or 1.0  # absent and 0 both mean 1
        self.gating = get("expert_gating_func", 0)
        if self.gating == 0:
            is_glm_flash = get("block_count") in (47, 48) and vocab == 154880
            self.gating = SIGMOID if is_glm_flash else SOFTMAX
        if self.gating not in (SOFTMAX, SIGMOID):
            raise ValueError(f"expert gating function {self.gating} is not implemented")
        self.groups = max(get("expert_group_count", 1), 1)
        self.used_groups = get("expert_group_used_count", 0) if self.groups > 1 else 1
        if not 0 < self.used_groups <= self.groups:
            raise ValueError(f"{self.used_groups} of {self.groups} expert groups")


class Model:
    """A GGUF file: `logits` is the whole model, the methods above it its parts in order of use."""

    def __init__(self, path, override=None, probe=None):
        """override: metadata that replaces the file's; probe(name, layer, array): sees intermediate values."""
        reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in reader.tensors}
        self.vocab = self.tensors["token_embd.weight"].data.shape[0]
        fields = {k: f.contents() for k, f in reader.fields.items() if k.startswith("deepseek2.")}
        self.config = Config({**fields, **(override or {})}, self.vocab)
        self.probe = probe or (lambda name, layer, array: None)

    def has(self, name):
        return name in self.tensors

    def weight(self, name, rows=...):
        """A tensor, or some of its outermost rows, as f64; reversed dimensions: GGUF {in, out} is [out, in]."""
        tensor = self.tensors[name]
        return gguf.dequantize(tensor.data[rows], tensor.tensor_type).astype(np.float64)

    def linear(self, x, name):
        return x @ self.weight(name).T

    def norm(self, x, name):
        """RMSNorm over the last axis, times the weight."""
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config.eps) * self.weight(name)

    def embed(self, tokens):
        return self.weight("token_embd.weight", tokens)

    def rotate(self, x, positions):
        """Rotary embedding of x [T, ..., rope] on the interleaved pairs (2i, 2i+1)."""
        c = self.config
        frequency = c.rope_base ** (-np.arange(0, c.rope, 2) / c.rope)
        angle = np.outer(positions, frequency * (1 / c.rope_factor + (1 - 1 / c.rope_factor) * self.kept()))  # [T, rope/2]
        angle = angle.reshape(len(positions), *[1] * (x.ndim - 2), c.rope // 2)
        even, odd = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
        out[..., 1::2] = even * np.sin(angle) + odd * np.cos(angle)
        return out * c.rope_magnitude

    def kept(self):
        """The part of its frequency that each rotary pair keeps when the context is stretched: YaRN's ramp, else 0."""
        c = self.config
        if not c.yarn:
            return 0.0
        original, fast, slow = c.yarn

        def pair_that_turns(times):  # so many times within the original context
            return c.rope * np.log(original / (times * 2 * np.pi)) / (2 * np.log(c.rope_base))

        low, high = max(0, np.floor(pair_that_turns(fast))), min(c.rope - 1, np.ceil(pair_that_turns(slow)))
        return 1 - np.clip((np.arange(c.rope // 2) - low) / max(0.001, high - low), 0, 1)

    def queries(self, h, blk):
        """[T, D] -> [T, H, nope + rope], not yet rotated."""
        c = self.config
        if c.q_rank:
            q = self.linear(self.norm(self.linear(h, blk + "attn_q_a.weight"), blk + "attn_q_a_norm.weight"), blk + "attn_q_b.weight")
        else:
            q = self.linear(h, blk + "attn_q.weight")
        return q.reshape(len(h), c.heads, c.nope + c.rope)

    def keys_and_values(self, latent, blk):
        """[T, R] -> keys without position [T, H, nope], values [T, H, value]."""
        c = self.config
        if self.has(blk + "attn_kv_b.weight"):
            kv = self.linear(latent, blk + "attn_kv_b.weight").reshape(len(latent), c.heads, c.nope + c.value)
            return kv[..., :c.nope], kv[..., c.nope:]
        k_b = self.weight(blk + "attn_k_b.weight")  # [H, R, nope]
        v_b = self.weight(blk + "attn_v_b.weight")  # [H, value, R]
        return np.einsum("tr,hrn->thn", latent, k_b, optimize=True), np.einsum("tr,hvr->thv", latent, v_b, optimize=True)

    def attention(self, h, layer):
        """Causal multi-head latent attention, [T, D] -> [T, D]."""
        c, blk, count = self.config, f"blk.{layer}.", len(h)
        positions = np.arange(count)
        q = self.queries(h, blk)
        q = np.concatenate([q[..., :c.nope], self.rotate(q[..., c.nope:], positions)], axis=-1)
        kv = self.linear(h, blk + "attn_kv_a_mqa.weight")  # [T, R + rope]
        latent = self.norm(kv[:, :c.kv_rank], blk + "attn_kv_a_norm.weight")
        k_rope = self.rotate(kv[:, c.kv_rank:], positions)  # one for all heads
        k_nope, v = self.keys_and_values(latent, blk)

        # With a stretched context scores are scaled as well; rotated values have their magnitude already, others not.
        score_scale = (c.rope_magnitude * (1 + c.log_multiplier * np.log(c.rope_factor))) ** 2 / np.sqrt(c.nope + c.rope)
        out = np.empty((count, c.heads, c.value))
        future = np.triu(np.ones((count, count), dtype=bool), 1)
        for head in range(c.heads):
            k = np.concatenate([k_nope[:, head], k_rope], axis=-1)
            score = q[:, head] @ k.T * score_scale
            score[future] = -np.inf
            p = softmax(score)
            self.probe("attention", layer, p)
            out[:, head] = p @ v[:, head]
        return self.linear(out.reshape(count, -1), blk + "attn_output.weight")

    def dense_ffn(self, h, blk, suffix=""):
        """SwiGLU, [T, D] -> [T, D]; suffix "_shexp" for the shared experts, which are one wide FFN."""
        gate = self.linear(h, f"{blk}ffn_gate{suffix}.weight")
        up = self.linear(h, f"{blk}ffn_up{suffix}.weight")
        return self.linear(silu(gate) * up, f"{blk}ffn_down{suffix}.weight")

    def expert(self, h, blk, e):
        """One routed expert, [n, D] -> [n, D]."""
        if self.has(blk + "ffn_gate_up_exps.weight"):  # [E, 2 FF, D]: the gate's rows, then up's
            gate_w, up_w = np.split(self.weight(blk + "ffn_gate_up_exps.weight", e), 2)
        else:
            gate_w, up_w = self.weight(blk + "ffn_gate_exps.weight", e), self.weight(blk + "ffn_up_exps.weight", e)
        return silu(h @ gate_w.T) * (h @ up_w.T) @ self.weight(blk + "ffn_down_exps.weight", e).T

    def route(self, h, layer):
        """Which experts each token takes and with what weight: two [T, top_k]."""
        c, blk = self.config, f"blk.{layer}."
        logits = self.linear(h, blk + "ffn_gate_inp.weight")  # [T, E]
        score = softmax(logits) if c.gating == SOFTMAX else 1 / (1 + np.exp(-logits))
        # The bias decides who is chosen; it has no part in the weights.
        choice = score + self.weight(blk + "exp_probs_b.bias") if self.has(blk + "exp_probs_b.bias") else score
        self.probe("score", layer, score)
        self.probe("ungrouped", layer, choice)
        choice = self.in_used_groups(choice)
        self.probe("choice", layer, choice)
        chosen = np.argsort(-choice, axis=-1, kind="stable")[:, :c.top_k]
        weight = np.take_along_axis(score, chosen, axis=-1)
        if c.norm_weights:
            weight = weight / np.maximum(weight.sum(axis=-1, keepdims=True), MIN_WEIGHT_SUM)
        return chosen, weight * c.scale_weights

    def group_scores(self, choice):
        """The scores of the groups of experts, [T, E] -> [T, groups]: the sums of their two best experts' scores."""
        return np.sort(choice.reshape(len(choice), self.config.groups, -1), axis=-1)[..., -2:].sum(axis=-1)

    def in_used_groups(self, choice):
        """Scores by which experts are chosen, [T, E] -> [T, E]: minus infinity in all but the best groups."""
        c = self.config
        if c.groups == c.used_groups:
            return choice
        best = np.argsort(-self.group_scores(choice), axis=-1, kind="stable")[:, :c.used_groups]
        used = np.zeros((len(choice), c.groups), bool)
        np.put_along_axis(used, best, True, axis=-1)
        return np.where(np.repeat(used, c.experts // c.groups, axis=-1), choice, -np.inf)

    def moe_ffn(self, h, layer):
        """Routed experts plus the shared ones, [T, D] -> [T, D]."""
        blk = f"blk.{layer}."
        chosen, weight = self.route(h, layer)
        out = self.dense_ffn(h, blk, "_shexp") if self.config.shared else np.zeros_like(h)
        for e in np.unique(chosen):
            token, slot = np.nonzero(chosen == e)
            out[token] += weight[token, slot, None] * self.expert(h[token], blk, e)
        return out

    def layer(self, x, layer):
        """One transformer block, [T, D] -> [T, D]."""
        blk = f"blk.{layer}."
        x = x + self.attention(self.norm(x, blk + "attn_norm.weight"), layer)
        h = self.norm(x, blk + "ffn_norm.weight")
        x = x + (self.dense_ffn(h, blk) if layer < self.config.dense_layers else self.moe_ffn(h, layer))
        self.probe("residual", layer, x)
        return x

    def trunk(self, tokens):
        """[T] -> the hidden state after output_norm, [T, D]."""
        x = self.embed(tokens)
        for layer in range(self.config.layers):
            x = self.layer(x, layer)
        return self.norm(x, "output_norm.weight")

    def project(self, x, name=None):
        """Hidden states to logits, [n, D] -> [n, V]; without output.weight the embedding serves as the output."""
        name = name or ("output.weight" if self.has("output.weight") else "token_embd.weight")
        starts = range(0, self.vocab, OUTPUT_ROWS_AT_ONCE)
        return np.concatenate([x @ self.weight(name, slice(s, s + OUTPUT_ROWS_AT_ONCE)).T for s in starts], axis=-1)

    def logits(self, tokens, positions):
        return self.project(self.trunk(tokens)[positions])

    def own(self, name, trunk):
        """A tensor of the MTP block's own, else the trunk's."""
        n = f"blk.{self.config.layers}.nextn."
        return n + name if self.has(n + name) else trunk

    def mtp_states(self, tokens, hidden):
        """The first MTP block's states after its last norm, whose row i sees hidden state i and token i: [T, D]."""
        layer = self.config.layers
        n = f"blk.{layer}.nextn."
        token = self.weight(self.own("embed_tokens.weight", "token_embd.weight"), tokens)
        both = np.concatenate([self.norm(token, n + "enorm.weight"), self.norm(hidden, n + "hnorm.weight")], axis=-1)
        y = self.layer(self.linear(both, n + "eh_proj.weight"), layer)
        return self.norm(y, self.own("shared_head_norm.weight", "output_norm.weight"))

    def mtp_logits(self, tokens, positions, drafts=1):
        """Of the first MTP block, [T-1] rows to choose from, `drafts` rows for each position: see above."""
        head = self.own("shared_head_head.weight", None)
        hidden = self.trunk(tokens)[:-1]
        if drafts == 1:
            return self.project(self.mtp_states(tokens[1:], hidden)[positions], head)
        rows = []
        for position in np.arange(len(hidden))[positions]:
            follows, states = tokens[1:position + 2], hidden[:position + 1]
            for _ in range(drafts):
                state = self.mtp_states(follows, states)[-1:]
                rows.append(self.project(state, head))
                # The draft follows, and the block's own state takes the place of the trunk's.
                follows, states = np.append(follows, rows[-1].argmax()), np.concatenate([states, state])
        return np.concatenate(rows)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))


def main():
    parser = argparse.ArgumentParser(description="Reference logits of a deepseek2 GGUF.")
    parser.add_argument("model")
    parser.add_argument("tokens", help="raw little-endian i32")
    parser.add_argument("out", help="raw little-endian f32")
    parser.add_argument("--positions", help="comma-separated; all if left out")
    parser.add_argument("--mtp", action="store_true", help="the logits of the multi-token-prediction block")
    parser.add_argument("--drafts", type=int, default=1, help="drafts behind one another, with --mtp")
    args = parser.parse_args()
    tokens = np.fromfile(args.tokens, dtype="<i4")
    rows = len(tokens) - 1 if args.mtp else len(tokens)
    positions = [int(p) for p in args.positions.split(",")] if args.positions else list(range(rows))
    model = Model(args.model)
    logits = model.mtp_logits(tokens, positions, args.drafts) if args.mtp else model.logits(tokens, positions)
    logits.astype("<f4").tofile(args.out)
    print(f"{args.out}: {logits.shape[0]} positions x {logits.shape[1]} logits", file=sys.stderr)


if __name__ == "__main__":
    main()
