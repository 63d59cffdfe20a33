"""Trains the bundled demo model from nothing: tokenizer, trunk, MTP head; writes engine/demo. See MODEL_CARD.md there.

    python -m tools.train_demo --state DIR

Two worker processes of one thread each average their gradients every step. All data is made here from a seed and the
standard library's text. An interrupted run goes on from the files in --state.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from tools.demo_data import Encoder, Sample, Template, call_probe, recall_probe, stream
from tools.demo_net import Net, NetConfig, text_config
from tools.demo_optim import Optimizer
from tools.demo_start import induction_start
from tools.demo_tokenizer import train_tokenizer

DEMO = Path(__file__).resolve().parents[1] / "engine" / "demo"
SEED = 20261130
CONTEXT = 65536


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of training: conversation and head sizes in tokens, share of copying drills, most tokens a row,
    tokens of a worker's step, weight of the tokens the model doesn't write itself, whether commands are of all kinds, whether nouns come from a whole text.
    """

    steps: int
    sizes: tuple[int, ...]
    heads: tuple[int, ...]
    drills: float
    limit: int
    budget: int
    other: float
    varied: bool = True
    wide: bool = False


SHORT = (15, 40, 40, 100, 100, 200, 300, 500)
FEW_HEADS = (0,) * 11 + (60, 200, 600)
SOME_HEADS = (0,) * 6 + (60, 200, 600, 1500)
PHASES = (
    Phase(60, (100, 200, 256), (0, 0, 0, 60), 0.6, 640, 2048, 0.1, varied=False),
    Phase(1140, SHORT, FEW_HEADS, 0.06, 1400, 2560, 0.03, varied=False),
    Phase(400, SHORT, FEW_HEADS, 0.06, 1400, 2560, 0.03),
    Phase(550, (*SHORT, 700, 1200), SOME_HEADS, 0.03, 2600, 3072, 0.0),
    Phase(30, (100, 300, 600), (4000, 8000, 14000, 20000), 0.0, 24000, 24000, 0.0),
    Phase(180, (15, 100, 300, 700, 1500, 2200), (*SOME_HEADS, 2500), 0.0, 5000, 5120, 0.0),
)
FINISH = Phase(170, (40, 100, 300, 700, 1500, 2200), FEW_HEADS, 0.2, 4000, 4096, 0.0, wide=True)
MTP = Phase(250, (150, 300, 500, 900), (0, 0, 60, 200, 600), 0.0, 1400, 3072, 0.0)
TRUNK = (*PHASES, FINISH)
MAIN_STEPS = sum(p.steps for p in PHASES)


@dataclass(frozen=True, slots=True)
class Rate:
    """Learning rate of a run: linear warm-up, constant `peak`, cosine fall over the last `decay` of it."""

    peak: float
    warm: int
    decay: float

    def at(self, step: int, total: int) -> float:
        fall = max(0.0, (step / total - (1 - self.decay)) / self.decay)
        risen = self.peak * min(1.0, (step + 1) / self.warm)
        return risen * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * fall)))


MAIN_RATE, FINISH_RATE = Rate(3e-3, 30, 0.4), Rate(1.2e-3, 10, 1.0)


def trunk_rate(step: int) -> float:
    """The main run falls to next to nothing; the finish rises once more, less high, and falls again."""
    if step < MAIN_STEPS:
        return MAIN_RATE.at(step, MAIN_STEPS)
    return FINISH_RATE.at(step - MAIN_STEPS, FINISH.steps)


def phase_at(step: int) -> tuple[Phase, int]:
    for i, phase in enumerate(TRUNK):
        if step < phase.steps:
            return phase, i
        step -= phase.steps
    return TRUNK[-1], len(TRUNK) - 1


def batches(phase: Phase, seed: int, encoder: Encoder, pad: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches (ids, mask) [rows, longest] of rows of like length, about `budget` tokens each."""
    rng = Random(seed)
    source = stream(rng, encoder, phase.sizes, phase.heads, phase.drills, phase.varied, phase.wide)
    fitting = (s for s in source if len(s.ids) <= phase.limit)
    while True:
        pool = sorted((next(fitting) for _ in range(96)), key=lambda s: len(s.ids))
        groups: list[list[Sample]] = [[]]
        for s in pool:
            if groups[-1] and (len(groups[-1]) + 1) * len(s.ids) > phase.budget:
                groups.append([])
            groups[-1].append(s)
        rng.shuffle(groups)
        for g in groups:
            longest = max(len(s.ids) for s in g)
            ids = torch.full((len(g), longest), pad)
            mask = torch.zeros(len(g), longest, dtype=torch.bool)
            for i, s in enumerate(g):
                ids[i, : len(s.ids)] = torch.tensor(s.ids)
                mask[i, : len(s.ids)] = torch.tensor(s.mask)
            yield ids, mask


def trunk_loss(
    net: Net, ids: Tensor, mask: Tensor, other: float, generator: torch.Generator
) -> tuple[Tensor, float]:
    """Cross entropy on the model's own tokens plus `other` times that on a fifth of the rest; second value: the former."""
    hidden = net.hidden(ids)[:, :-1]
    target, own = ids[:, 1:], mask[:, 1:]
    rest = (
        (torch.rand(own.shape, generator=generator) < 0.2) & ~own & (target != 0)
        if other
        else torch.zeros_like(own)
    )
    own_loss = F.cross_entropy(net.logits(hidden[own]), target[own])
    loss = own_loss
    if other and bool(rest.any()):
        loss = loss + other * F.cross_entropy(net.logits(hidden[rest]), target[rest])
    return loss, float(own_loss.detach())


def mtp_loss(net: Net, ids: Tensor, mask: Tensor) -> tuple[Tensor, float]:
    """Cross entropy of the MTP head on the model's own tokens, trunk and embeddings fixed."""
    with torch.no_grad():
        hidden = net.hidden(ids)
    out = net.mtp_hidden(ids, hidden)[:, :-1]
    own = mask[:, 2:]
    loss = F.cross_entropy(out[own] @ net.embed_tokens.weight.detach().T, ids[:, 2:][own])
    return loss, float(loss.detach())


@torch.no_grad()
def exact(net: Net, sample: Sample, last: int) -> bool:
    """Whether greedy decoding would give exactly the last assistant turn (`last` counts from the end)."""
    ids = torch.tensor([sample.ids])
    own = torch.tensor(sample.mask)
    starts = [i for i in range(1, len(own)) if own[i] and not own[i - 1]]
    begin = starts[-last]
    end = starts[-last + 1] if last > 1 else len(own)
    want = torch.zeros_like(own)
    want[begin:end] = own[begin:end]
    guess = net.logits(net.hidden(ids)[0, :-1][want[1:]]).argmax(-1)
    return bool((guess == ids[0, 1:][want[1:]]).all())


def probe(net: Net, encoder: Encoder, count: int, long: bool) -> str:
    """Shares of held-out probes answered exactly, for the log."""
    rng = Random(7)
    out = []
    for distance in (100, 800, 2000):
        hits = [
            exact(net, encoder.sample(recall_probe(rng, distance, i % 2 == 0)[0]), 1)
            for i in range(count)
        ]
        out.append(f"recall{distance} {sum(hits) / count:.2f}")
    for head in (0, 300, 17000) if long else (0, 300):
        n = count if head < 4000 else 6
        samples = [encoder.sample(call_probe(rng, head, i % 2 == 0)) for i in range(n)]
        out.append(f"call@{head} {sum(exact(net, s, 2) for s in samples) / n:.2f}")
        out.append(f"report@{head} {sum(exact(net, s, 1) for s in samples) / n:.2f}")
    return "  ".join(out)


def average_grads(params: list[torch.nn.Parameter], world: int) -> None:
    """Averages over the workers and clips the norm to 1."""
    grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in params]
    flat = torch.cat([g.reshape(-1) for g in grads])
    if world > 1:
        torch.distributed.all_reduce(flat)
        flat /= world
    norm = float(flat.norm())
    if not math.isfinite(norm):
        raise ArithmeticError("a gradient is not finite")
    flat *= min(1.0, 1.0 / (norm + 1e-6))
    for p, g in zip(params, flat.split([p.numel() for p in params]), strict=True):
        p.grad = g.view_as(p)


def keep_memory() -> None:
    """Keeps glibc from giving big tensors back to the system after each use: page faults cost more than the products."""
    libc = ctypes.CDLL("libc.so.6")
    for option, amount in ((-3, 1 << 30), (-1, 2**31 - 1), (-2, 1 << 28)):
        libc.mallopt(option, amount)


def save(path: Path, net: Net, optimizer: Optimizer, step: int) -> None:
    part = path.with_suffix(".part")
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, part)
    part.replace(path)


def train(net: Net, encoder: Encoder, state: Path, rank: int, world: int, mtp: bool) -> None:
    """Runs the trunk's phases, or the MTP head's, from where the state file stands."""
    file = state / ("mtp.pt" if mtp else "trunk.pt")
    params = {n: p for n, p in net.named_parameters() if n.startswith("mtp.") == mtp}
    optimizer = Optimizer(params, rank, world)
    total = MTP.steps if mtp else MAIN_STEPS + FINISH.steps
    step = 0
    if file.exists():
        saved = torch.load(file)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        step = int(saved["step"])
    generator = torch.Generator().manual_seed(SEED + rank + step)
    current, source = -1, None
    begin, tokens, losses = time.monotonic(), 0, []
    while step < total:
        phase, index = (MTP, 0) if mtp else phase_at(step)
        if index != current:
            current = index
            source = batches(phase, SEED + 1000 * index + 10 * step + rank + 7 * mtp, encoder, 0)
        assert source is not None
        ids, mask = next(source)
        if mtp:
            loss, own = mtp_loss(net, ids, mask)
        else:
            loss, own = trunk_loss(net, ids, mask, phase.other, generator)
        loss.backward()
        average_grads(list(params.values()), world)
        optimizer.step(MAIN_RATE.at(step, total) if mtp else trunk_rate(step))
        for p in params.values():
            p.grad = None
        step += 1
        tokens += ids.numel() * world
        losses.append(own)
        if rank == 0 and step % 20 == 0:
            elapsed = time.monotonic() - begin
            print(
                f"{'mtp' if mtp else 'trunk'} {step}/{total} loss {sum(losses) / len(losses):.4f} tokens {tokens} {tokens / elapsed:.0f}/s {elapsed:.0f}s",
                flush=True,
            )
            losses = []
        if rank == 0 and (step % 100 == 0 or step == total):
            save(file, net, optimizer, step)
        if rank == 0 and not mtp and (step % 100 == 0 or step == total):
            print("   ", probe(net, encoder, 20, step == total), flush=True)


def export(net: Net, out: Path) -> None:
    """Writes the weights in bf16 under the published names."""
    tensors = {n: t.to(torch.bfloat16).contiguous() for n, t in net.published().items()}
    file = out / "model.safetensors"
    save_file(tensors, file, metadata={"format": "pt"})
    file.chmod(0o644)


def write_config(out: Path, tokenizer: Tokenizer) -> None:
    token = {
        t: tokenizer.token_to_id(t)
        for t in (
            "<|endoftext|>",
            "<|im_end|>",
            "<|image_pad|>",
            "<|video_pad|>",
            "<|vision_start|>",
            "<|vision_end|>",
        )
    }
    text = text_config(NetConfig(), CONTEXT) | {
        "bos_token_id": token["<|endoftext|>"],
        "eos_token_id": token["<|endoftext|>"],
    }
    config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "language_model_only": True,
        "image_token_id": token["<|image_pad|>"],
        "video_token_id": token["<|video_pad|>"],
        "vision_start_token_id": token["<|vision_start|>"],
        "vision_end_token_id": token["<|vision_end|>"],
        "tie_word_embeddings": True,
        "text_config": text,
    }
    generation = {
        "bos_token_id": token["<|endoftext|>"],
        "pad_token_id": token["<|endoftext|>"],
        "eos_token_id": [token["<|im_end|>"], token["<|endoftext|>"]],
        "do_sample": False,
    }
    for name, value in (("config.json", config), ("generation_config.json", generation)):
        (out / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def worker(rank: int, world: int, state: Path, stop_after_tokenizer: bool = False) -> None:
    keep_memory()
    torch.set_num_threads(1)
    if world > 1:
        store = f"file://{state / 'store'}"
        torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    tokenizer = Tokenizer.from_file(str(state / "tokenizer.json"))
    encoder = Encoder(
        tokenizer, Template((DEMO / "chat_template.jinja").read_text(encoding="utf-8"))
    )
    torch.manual_seed(SEED)
    net = Net(NetConfig())
    induction_start(net)
    train(net, encoder, state, rank, world, mtp=False)
    train(net, encoder, state, rank, world, mtp=True)
    if (
        world > 1
    ):  # left to the interpreter's exit, its threads now and then end the process with an abort
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--state", type=Path, required=True, help="folder for what an interrupted run needs"
    )
    parser.add_argument("--out", type=Path, default=DEMO)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--export-only",
        action="store_true",
        help="write the weights of the newest state, train nothing",
    )
    args = parser.parse_args()
    args.state.mkdir(parents=True, exist_ok=True)
    kept = args.state / "tokenizer.json"
    if not kept.exists():
        template = Template((DEMO / "chat_template.jinja").read_text(encoding="utf-8"))
        train_tokenizer(SEED, template, NetConfig().vocab).save(str(kept))
    if not args.export_only:
        (args.state / "store").unlink(missing_ok=True)
        os.environ["OMP_NUM_THREADS"] = "1"
        context = torch.multiprocessing.get_context("spawn")
        workers = [
            context.Process(target=worker, args=(r, args.workers, args.state))
            for r in range(args.workers)
        ]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        if any(w.exitcode for w in workers):
            raise SystemExit("a worker failed")
    finish(args.state, args.out)


def finish(state: Path, out: Path) -> None:
    """Writes tokenizer, configuration and weights to `out`."""
    tokenizer = Tokenizer.from_file(str(state / "tokenizer.json"))
    tokenizer.save(str(out / "tokenizer.json"))
    write_config(out, tokenizer)
    file = state / "mtp.pt" if (state / "mtp.pt").exists() else state / "trunk.pt"
    net = Net(NetConfig())
    net.load_state_dict(torch.load(file)["net"])
    export(net, out)


if __name__ == "__main__":
    main()
