"""The dashboard and its JSON interface (`python -m amqpjobs.web`): reads, and shows what the streams say."""
