"""A GPT-2 of Hugging Face's transformers, from a configuration, that learns to count: transformers_count.py trains it with PyTorch,
transformers_count_weft.py with Weft. Needs the package transformers.

    python transformers_count.py
"""
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel


class Counting(torch.utils.data.Dataset):
    """Numbers modulo 16, from anywhere on."""

    def __len__(self):
        return 256

    def __getitem__(self, i):
        numbers = (torch.arange(12) + i) % 16
        return {"input_ids": numbers, "labels": numbers}


def main():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=16, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                        use_cache=False)
    model = GPT2LMHeadModel(config).train()
    loader = DataLoader(Counting(), batch_size=16, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(4):
        total = 0.0
        for batch in loader:
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += float(loss)
        print(f"epoch {epoch + 1}  loss {total / len(loader):.4f}")
    model.eval()
    with torch.no_grad():
        print("after 3 4 5 comes", model(torch.tensor([[3, 4, 5]])).logits[0, -1].argmax().item())


if __name__ == "__main__":
    main()
