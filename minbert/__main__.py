"""`python -m minbert` and `accelerate launch -m minbert` run the command line."""
from minbert.app.cli import main

if __name__ == "__main__":
    main()
