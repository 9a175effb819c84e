from datetime import timedelta

from django.contrib import admin
from django.urls import path
from health_check.views import HealthCheckView

from example_project.shop import views

outbox_health = (
    "reliable_messaging.health.OutboxHealth",
    {"min_workers": 1, "max_age": timedelta(minutes=5), "max_dead": 10},
)

SCHEDULED = ["reliable_messaging.health.TimersHealth", "reliable_messaging.health.JobsHealth"]

urlpatterns = [
    path("", views.index, name="index"),
    path("orders/", views.order, name="order"),
    path("admin/", admin.site.urls),
    path("health/", HealthCheckView.as_view(checks=[outbox_health, *SCHEDULED]), name="health"),
]
