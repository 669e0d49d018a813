"""A Lightning module that learns to add: lightning_sum.py trains it with PyTorch, lightning_sum_weft.py with Weft. Needs the package
lightning.

    python lightning_sum.py
"""
import lightning
import torch
import torch.nn as nn
import weft
from torch.utils.data import DataLoader, TensorDataset


class Sum(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.Linear(32, 1))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.net.parameters(), lr=1e-2)

    def training_step(self, batch, index):
        loss = self.session.step(batch)
        self.log("loss", loss)


def main():
    lightning.seed_everything(0, verbose=False)
    x = torch.rand(512, 4)
    y = x.sum(1, keepdim=True)
    module = Sum()
    module.automatic_optimization = False
    module.session = weft.Session(weft.export(module.net, (x[:32], y[:32]), loss="mse"), module.configure_optimizers())
    trainer = lightning.Trainer(max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False)
    trainer.fit(module, DataLoader(TensorDataset(x, y), batch_size=32))
    module.net.load_state_dict(module.session.state_dict())
    print(f"last loss {trainer.callback_metrics['loss']:.6f}")
    with torch.no_grad():
        print(f"0.2 + 0.4 + 0.6 + 0.8 = {module.net(torch.tensor([[0.2, 0.4, 0.6, 0.8]])).item():.2f}")


if __name__ == "__main__":
    main()
