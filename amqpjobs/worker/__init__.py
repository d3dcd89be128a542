"""The worker: takes jobs from queues, runs their functions, records each outcome before it acknowledges the job."""
