"""Two spirals, told apart by a small network: a training script as everybody writes it. spirals_weft.py is the same script with Weft.

    python spirals.py
"""
import torch
import torch.nn as nn
import weft
from torch.utils.data import DataLoader, TensorDataset


def spirals(n):
    y = torch.arange(n) % 2
    t = torch.rand(n) * 3
    angle = 2.2 * t + torch.pi * y
    x = torch.stack([t * angle.cos(), t * angle.sin()], 1) + 0.03 * torch.randn(n, 2)
    return x, y


def main():
    torch.manual_seed(0)
    x, y = spirals(1024)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    session = weft.Session(weft.export(model, (x[:64], y[:64]), loss="cross_entropy"), optimizer)
    for epoch in range(20):
        total = 0.0
        for x, y in loader:
            loss = session.step((x, y))
            total += float(loss)
        print(f"epoch {epoch + 1:2d}  loss {total / len(loader):.4f}")
    model.load_state_dict(session.state_dict())
    x, y = spirals(512)
    with torch.no_grad():
        accuracy = (model.eval()(x).argmax(1) == y).float().mean().item()
    print(f"accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
