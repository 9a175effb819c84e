from django.apps import AppConfig


class BenchAppConfig(AppConfig):
    name = "tests.benchmarks.benchapp"
