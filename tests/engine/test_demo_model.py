"""The bundled model: its files have the published form, and it does what it was taught, judged by transformers."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import Qwen3_5ForCausalLM

from engine.api import Message, Prompt, ToolSpec
from engine.text.model import TextModel

DEMO = Path(__file__).resolve().parents[2] / "engine" / "demo"
LIMIT_BYTES = 16 * 1024 * 1024
MTP_LAYER = {
    "input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "self_attn.q_proj",
    "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm",
}  # fmt: skip
EXEC = ToolSpec(
    "exec",
    "Run a shell command and return its output.",
    {"type": "object", "required": ["command"], "properties": {"command": {"type": "string"}}},
)


@pytest.fixture(scope="module")
def text() -> TextModel:
    return TextModel.load(DEMO)


@pytest.fixture(scope="module")
def model() -> Any:
    torch.set_num_threads(2)
    return Qwen3_5ForCausalLM.from_pretrained(DEMO, dtype=torch.float32).eval()


def tensors() -> dict[str, Any]:
    """The header of the weights file."""
    with (DEMO / "model.safetensors").open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return header


def say(
    model: Any,
    text: TextModel,
    *messages: Message,
    tools: tuple[ToolSpec, ...] = (),
    thinking: bool,
) -> str:
    """The greedy answer with its control tokens; the limit is generous for what was taught."""
    ids = text.render(Prompt(messages, tools, thinking)).token_ids
    end = Tokenizer.from_file(str(DEMO / "tokenizer.json")).token_to_id("<|im_end|>")
    out = model.generate(torch.tensor([ids]), max_new_tokens=100, do_sample=False, eos_token_id=end)
    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    answer: str = tokenizer.decode(out[0, len(ids) :].tolist(), skip_special_tokens=False)
    return answer


def test_weights_are_small_and_bf16() -> None:
    assert (DEMO / "model.safetensors").stat().st_size <= LIMIT_BYTES
    assert {t["dtype"] for t in tensors().values()} == {"BF16"}


def test_tensor_names_are_the_published_ones() -> None:
    names = set(tensors())
    config = json.loads((DEMO / "config.json").read_text())["text_config"]
    prefix = "model.language_model."
    assert {prefix + "embed_tokens.weight", prefix + "norm.weight"} <= names
    for i, kind in enumerate(config["layer_types"]):
        assert kind == ("full_attention" if i % 4 == 3 else "linear_attention")
        mixer = "self_attn.q_proj" if kind == "full_attention" else "linear_attn.in_proj_qkv"
        assert f"{prefix}layers.{i}.{mixer}.weight" in names
    outside = {n for n in names if not n.startswith((prefix, "mtp."))}
    assert outside == (set() if config["tie_word_embeddings"] else {"lm_head.weight"})


def test_mtp_head_has_its_fifteen_tensors() -> None:
    ends = {"mtp.fc", "mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden"}
    ends |= {f"mtp.layers.0.{part}" for part in MTP_LAYER}
    assert {n.removesuffix(".weight") for n in tensors() if n.startswith("mtp.")} == ends


def test_control_tokens_are_single_and_tags_stay_visible() -> None:
    document = json.loads((DEMO / "tokenizer.json").read_text(encoding="utf-8"))
    special = {t["content"]: t["special"] for t in document["added_tokens"]}
    assert {t for t, s in special.items() if s} >= {
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|image_pad|>",
    }
    assert {t for t, s in special.items() if not s} >= {
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_response>",
    }
    vocab = json.loads((DEMO / "config.json").read_text())["text_config"]["vocab_size"]
    assert vocab % 64 == 0
    assert Tokenizer.from_file(str(DEMO / "tokenizer.json")).get_vocab_size() <= vocab


@pytest.mark.parametrize("thinking", [True, False])
def test_a_greeting_is_answered_and_the_turn_ends(
    model: Any, text: TextModel, thinking: bool
) -> None:
    answer = say(model, text, Message("user", "Hello!"), thinking=thinking)
    assert answer.endswith("Hello! How can I help you?<|im_end|>")


def test_a_fact_is_recalled_turns_later(model: Any, text: TextModel) -> None:
    told = Message("user", "My cat is called Miso.")
    between = (
        Message("assistant", "Noted: your cat is called Miso."),
        Message("user", "Thanks!"),
        Message("assistant", "You are welcome!"),
    )
    answer = say(
        model, text, told, *between, Message("user", "What is my cat called?"), thinking=False
    )
    assert "Miso" in answer
    assert answer.endswith("<|im_end|>")


def test_a_command_becomes_one_call_and_its_output_is_reported(model: Any, text: TextModel) -> None:
    asked = Message("user", "Run the command `echo hello-from-tool` with the exec tool.")
    answer = say(model, text, asked, tools=(EXEC,), thinking=False)
    body = "<function=exec>\n<parameter=command>\necho hello-from-tool\n</parameter>\n</function>"
    assert answer == f"<tool_call>\n{body}\n</tool_call><|im_end|>"
