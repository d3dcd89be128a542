"""`python -m amqpjobs` is `amqpjobs`."""

import sys

from amqpjobs.cli import main

sys.exit(main())
