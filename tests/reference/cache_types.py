#!/usr/bin/env python3
"""What types of KV cache do to the predictions of a `deepseek2` GGUF, by the reference in float64: of each the error of the
latents, and the KL divergence of the probabilities of the next token from those with an exact cache.

usage: cache_types.py MODEL.gguf TOKENS.i32 [--window 512]

TOKENS is raw little-endian i32, computed in windows. `rotated` stands for latents that are rotated by a Hadamard matrix
before they are rounded, blocks of 32 by themselves, or all of them by the largest that divides them. Perplexity is that of
the second half of each window.
"""
import argparse

import numpy as np

from reference import Model


def f16(x):
    return x.astype(np.float16).astype(float)


def q8_0(x):
    """Blocks of 32 rounded to bytes, with a scale in f16."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    scale = f16(np.abs(blocks).max(-1, keepdims=True) / 127)
    quants = np.round(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0))
    return (np.clip(quants, -127, 127) * scale).reshape(x.shape)


def rotated(size):
    """The same of what a Hadamard matrix makes of every `size` values, brought back by it."""
    h = np.ones((1, 1))
    while len(h) < size:
        h = np.block([[h, h], [h, -h]])
    h /= np.sqrt(size)

    def rounded(x):
        turned = (x.reshape(*x.shape[:-1], -1, size) @ h).reshape(x.shape)
        return (q8_0(turned).reshape(*x.shape[:-1], -1, size) @ h).reshape(x.shape)

    return rounded


class Cached(Model):
    """The model with latents as `cache` keeps them, and rotary keys in f16; exact without one."""

    cache = None

    def norm(self, x, name):
        y = super().norm(x, name)
        if self.cache is None or not name.endswith("attn_kv_a_norm.weight"):
            return y
        kept = self.cache(y)
        self.errors.append(((kept - y) ** 2).sum() / (y**2).sum())
        return kept

    def rotate(self, x, positions):
        y = super().rotate(x, positions)
        return f16(y) if self.cache and x.ndim == 2 else y  # queries have heads, the key has none


def log_probabilities(logits):
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def main():
    parser = argparse.ArgumentParser(description="What types of KV cache do to predictions.")
    parser.add_argument("model")
    parser.add_argument("tokens", help="raw little-endian i32")
    parser.add_argument("--window", type=int, default=512)
    args = parser.parse_args()
    tokens = np.fromfile(args.tokens, dtype="<i4")
    windows = [tokens[at:at + args.window] for at in range(0, len(tokens) - args.window + 1, args.window)]
    model = Cached(args.model)
    rank = model.config.kv_rank
    types = {"f16": f16, "q8_0": q8_0, "q8_0, rotated by 32": rotated(32), "q8_0, rotated whole": rotated(rank & -rank)}
    exact = [log_probabilities(model.logits(window, slice(None))) for window in windows]
    for name, model.cache in {"exact": None, **types}.items():
        model.errors, divergences, same, nats = [], [], [], []
        for window, base in zip(windows, exact):
            found = log_probabilities(model.logits(window, slice(None)))
            divergences.append((np.exp(base) * (base - found)).sum(-1))
            same.append(base.argmax(-1) == found.argmax(-1))
            half = np.arange(len(window) // 2, len(window) - 1)
            nats.append(-found[half, window[half + 1]])
        divergence = np.concatenate(divergences)
        print(
            f"{name}: latents {np.sqrt(np.mean(model.errors or [0])):.2e}, KL divergence {divergence.mean():.2e}, median "
            f"{np.median(divergence):.2e}, 99 % below {np.quantile(divergence, 0.99):.2e}, same likeliest token "
            f"{100 * np.mean(np.concatenate(same)):.2f} %, perplexity {np.exp(np.mean(np.concatenate(nats))):.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
