"""The group batch: Jobs and CronJobs."""
