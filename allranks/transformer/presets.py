"""Which published models does the book compute with? Their shapes, each with its source."""

from collections import OrderedDict

from .sizes import decoder


def gpt2(layers, hidden, heads):
    """A GPT-2 (Radford et al. 2019, Table 2; vocabulary and context from section 2.3)."""
    return decoder(layers, hidden, heads, 50257, 1024)


def megatron(layers, hidden, heads):
    """A GPT in Megatron-LM: the vocabulary is padded to 51200 (Narayanan et al. 2021, section 5.1)."""
    return decoder(layers, hidden, heads, 51200, 2048)


def llama(layers, hidden, heads, vocabulary, sequence, kv_heads, feed_forward, **options):
    """A Llama: SwiGLU, RMSNorm, rotary positions, no biases (Touvron et al. 2023, section 2.2)."""
    return decoder(
        layers, hidden, heads, vocabulary, sequence, kv_heads=kv_heads, feed_forward=feed_forward,
        gated=True, tied=False, biases=False, learned_positions=False, **options,
    )  # fmt: skip


PRESETS = OrderedDict(
    [
        # Radford et al. 2019, Table 2
        ("gpt2", gpt2(12, 768, 12)),
        ("gpt2-medium", gpt2(24, 1024, 16)),
        ("gpt2-large", gpt2(36, 1280, 20)),
        ("gpt2-xl", gpt2(48, 1600, 25)),
        # Brown et al. 2020, Table 2.1; GPT-2's vocabulary
        ("gpt3-175b", decoder(96, 12288, 96, 50257, 2048)),
        # Touvron et al. 2023, Table 1 and the released configurations
        ("llama2-7b", llama(32, 4096, 32, 32000, 4096, 32, 11008)),
        ("llama2-13b", llama(40, 5120, 40, 32000, 4096, 40, 13824)),
        ("llama2-70b", llama(80, 8192, 64, 32000, 4096, 8, 28672)),
        # Grattafiori et al. 2024, Table 3; sequences of 8192 before the long-context stage (section 3.4.1)
        ("llama3-8b", llama(32, 4096, 32, 128256, 8192, 8, 14336)),
        ("llama3-70b", llama(80, 8192, 64, 128256, 8192, 8, 28672)),
        ("llama3-405b", llama(126, 16384, 128, 128256, 8192, 8, 53248)),
        # Jiang et al. 2024, Table 1
        ("mixtral-8x7b", llama(32, 4096, 32, 32000, 32768, 8, 14336, experts=8, active_experts=2)),
        # Smith et al. 2022, section 3.2; also Narayanan et al. 2021, Table 1
        ("mt-nlg-530b", megatron(105, 20480, 128)),
        # Narayanan et al. 2021, Table 1; 22b: Korthikanti et al. 2022, Table 3
        ("megatron-1.7b", megatron(24, 2304, 24)),
        ("megatron-3.6b", megatron(30, 3072, 32)),
        ("megatron-7.5b", megatron(36, 4096, 32)),
        ("megatron-18b", megatron(40, 6144, 48)),
        ("megatron-22b", megatron(48, 6144, 64)),
        ("megatron-39b", megatron(48, 8192, 64)),
        ("megatron-76b", megatron(60, 10240, 80)),
        ("megatron-146b", megatron(80, 12288, 96)),
        ("megatron-310b", megatron(96, 16384, 128)),
        ("megatron-530b", megatron(105, 20480, 128)),
        ("megatron-1t", megatron(128, 25600, 160)),
        # the model that this book trains: allranks.model.GPT
        ("running", decoder(4, 64, 4, 28, 64, tied=False)),
        # the model that it serves: allranks.serving.Llama
        ("served", llama(4, 64, 4, 28, 128, 2, 176, head_width=32)),
    ]
)
