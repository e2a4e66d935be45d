"""Writes a small model whose replies are known, for agents: `scripted_model.py FIXTURE FILE`.

It has the tokenizer and the template of the demonstration model, one layer that adds nothing, and a matrix by which the
next token depends on the last one alone:

- It does not think, its reply is the word in REPLY, and then it ends.
- Where a schema decides what may follow, as in the arguments of a call, it ends texts, lists and objects as soon as it
  may.

Attention is computed as in any other model, so that prompts and caches are real, but it is narrow, so that a prompt of
thirty thousand tokens takes only minutes on a processor.
"""

import struct
import sys

REPLY = "Once"
WIDTH = 32
KEPT = ("tokenizer.", "general.architecture", "general.license")
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

# Components of a token's embedding: one that all have, and those that say what follows.
ALL, THINKING, BEGINS, ENDS = 0, 1, 2, 3


class Reader:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        self.place = 24
        self.fields = dict(self.field() for _ in range(struct.unpack_from("<Q", self.bytes, 16)[0]))

    def take(self, form):
        (value,) = struct.unpack_from("<" + form, self.bytes, self.place)
        self.place += struct.calcsize(form)
        return value

    def text(self):
        length = self.take("Q")
        self.place += length
        return self.bytes[self.place - length : self.place].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, count = self.take("I"), self.take("Q")
            return [self.value(kind) for _ in range(count)]
        return self.take(FORMATS[kind])

    def field(self):
        """A key, its value, and the bytes of both."""
        start, key = self.place, self.text()
        value = self.value(self.take("I"))
        return key, (value, self.bytes[start : self.place])


def named(text):
    return struct.pack("<Q", len(text)) + text.encode()


def tensors(tokens):
    """The tensors: their dimensions, innermost first, and their values."""
    ids = {token: number for number, token in enumerate(tokens)}
    embeddings = [[1.0] + [0.0] * (WIDTH - 1) for _ in tokens]
    head = [[0.0] * WIDTH for _ in tokens]
    for token in ["<think>"]:
        embeddings[ids[token]][THINKING] = 4.0
    for token in ["</think>", "<|assistant|>"]:
        embeddings[ids[token]][BEGINS] = 4.0
    embeddings[ids[REPLY]][ENDS] = 4.0
    head[ids["</think>"]][THINKING] = 20.0
    head[ids[REPLY]][BEGINS] = 20.0
    head[ids["<|user|>"]][ENDS] = 20.0
    # What ends a value comes before what goes on, and what ends the reply before both.
    for rank, texts in enumerate([[","], ["]", "}"], ["[]", "{}"], ['"', '"]', '"}'], ["</arg_value>", "</tool_call>"]]):
        for token in texts:
            if token in ids:
                head[ids[token]][ALL] = 4.0 + 2.0 * rank
    head[ids["<|user|>"]][ALL] = 16.0

    def made(*dims, value=0.0):
        count = 1
        for size in dims:
            count *= size
        return dims, [value] * count

    vocabulary = len(tokens)
    return {
        "token_embd.weight": ((WIDTH, vocabulary), sum(embeddings, [])),
        "output_norm.weight": made(WIDTH, value=1.0),
        "output.weight": ((WIDTH, vocabulary), sum(head, [])),
        "blk.0.attn_norm.weight": made(WIDTH, value=1.0),
        "blk.0.ffn_norm.weight": made(WIDTH, value=1.0),
        "blk.0.attn_q_a.weight": made(WIDTH, 32, value=0.01),
        "blk.0.attn_q_a_norm.weight": made(32, value=1.0),
        "blk.0.attn_q_b.weight": made(32, 48, value=0.01),
        "blk.0.attn_kv_a_mqa.weight": made(WIDTH, 48, value=0.01),
        "blk.0.attn_kv_a_norm.weight": made(32, value=1.0),
        "blk.0.attn_k_b.weight": made(32, 32, 1, value=0.01),
        "blk.0.attn_v_b.weight": made(32, 32, 1, value=0.01),
        "blk.0.attn_output.weight": made(32, WIDTH),
        "blk.0.ffn_gate.weight": made(WIDTH, 32, value=0.01),
        "blk.0.ffn_up.weight": made(WIDTH, 32, value=0.01),
        "blk.0.ffn_down.weight": made(32, WIDTH),
    }


def shape(vocabulary, context):
    integers = {
        "block_count": 1, "context_length": context, "embedding_length": WIDTH, "feed_forward_length": 32,
        "attention.head_count": 1, "attention.head_count_kv": 1, "vocab_size": vocabulary, "attention.q_lora_rank": 32,
        "attention.kv_lora_rank": 32, "attention.key_length": 48, "attention.value_length": 32,
        "attention.key_length_mla": 48, "attention.value_length_mla": 32, "rope.dimension_count": 16,
        "leading_dense_block_count": 1, "expert_feed_forward_length": 32, "expert_count": 2, "expert_used_count": 1,
        "expert_shared_count": 1, "expert_gating_func": 2,
    }  # fmt: skip
    floats = {"rope.freq_base": 1e6, "attention.layer_norm_rms_epsilon": 1e-5, "expert_weights_scale": 1.0}
    fields = [named("deepseek2." + key) + struct.pack("<II", 4, value) for key, value in integers.items()]
    return fields + [named("deepseek2." + key) + struct.pack("<If", 6, value) for key, value in floats.items()]


def write(fixture, path, context=1 << 17):
    read = Reader(fixture).fields
    tokens = read["tokenizer.ggml.tokens"][0]
    fields = [raw for key, (_, raw) in read.items() if key.startswith(KEPT)] + shape(len(tokens), context)
    all_tensors = tensors(tokens)
    descriptions, data = b"", b""
    for name, (dims, values) in all_tensors.items():
        descriptions += named(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, 0, len(data))
        data += struct.pack("<%df" % len(values), *values)
        data += b"\0" * (-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(fields)) + b"".join(fields) + descriptions
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2])
