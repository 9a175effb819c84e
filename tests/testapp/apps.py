from django.apps import AppConfig

from .wrong_clock import put_wrong


class TestAppConfig(AppConfig):
    name = "tests.testapp"

    def ready(self) -> None:
        put_wrong()
