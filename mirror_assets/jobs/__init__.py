"""What `spark-submit` starts: a module for each bulk job, with `main(spark, args)`.

`spark-submit [its options] .../mirror_assets/jobs/JOB.py [args]`, or
`python -m mirror_assets.jobs.JOB [--master URL] [args]`. The answer is one JSON document on stdout.
"""
