from django.conf import settings
from django.contrib import admin
from django.urls import path
from health_check.views import HealthCheckView

urlpatterns = [
    path("admin/", admin.site.urls),
    *(
        path(
            f"health/{alias}/",
            HealthCheckView.as_view(checks=[("reliable_messaging.health.OutboxHealth", {"alias": alias})]),
        )
        for alias in settings.DATABASES
    ),
]
