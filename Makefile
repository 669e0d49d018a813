# The commands of this project. Everything is built under build/.
#   make         builds build/weft and the libraries          make demo   trains a model, from nothing, in minutes
#   make check   builds with two compilers, runs all tests    make bench  compares with PyTorch (installs it privately)
#   make check-python   the Python package; what Weft writes, read by PyTorch, onnxruntime, TensorBoard and Netron (installs them privately)
#   make install PREFIX=/usr/local DESTDIR=
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
CMAKE_FLAGS ?=

.PHONY: build deps demo demo-ranks check check-python bless bench install clean

build: deps
	@tools/build.sh build $(CMAKE_FLAGS)

deps:
	@tools/deps.sh build

demo:
	@tools/deps.sh build demo
	@tools/build.sh build $(CMAKE_FLAGS)
	@examples/demo.sh

# Two ranks train; two do not agree; one is killed. Less than a minute.
demo-ranks:
	@tools/deps.sh build demo
	@tools/build.sh build $(CMAKE_FLAGS)
	@examples/demo_ranks.sh

check:
	@tools/deps.sh build check
	@tests/run.sh

# With PYTHON=... the tests run in that Python, and nothing is installed.
check-python:
	@tools/deps.sh build bench
ifeq ($(PYTHON),)
	@tools/venv.sh build/venv torch torchao numpy safetensors onnx onnxruntime tensorboard netron setuptools lightning transformers
endif
	@WEFT_PYTHON=$(or $(PYTHON),build/venv/bin/python) tests/run.sh python

# Rewrites what tests/ir and tests/golden expect, and the generated part of docs/verbs, from what the program prints now;
# review the diff.
bless: build
	@tests/run_ir.sh build/weft --bless
	@tests/golden.sh build/weft --bless
	@tools/docs.sh build/weft

bench:
	@tools/deps.sh build bench
	@tools/build.sh build $(CMAKE_FLAGS)
	@tools/venv.sh build/venv torch numpy safetensors torchvision
	@build/venv/bin/python bench/run.py $(BENCH_FLAGS)

install: build
	@cmake -S . -B build -DCMAKE_INSTALL_PREFIX=$(PREFIX) >/dev/null
	@DESTDIR=$(DESTDIR) cmake --install build

clean:
	rm -rf build
