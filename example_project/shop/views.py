from __future__ import annotations

from uuid import uuid4

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from .models import Order
from .services import place_order


def index(request: HttpRequest) -> HttpResponse:
    return render(request, "shop/index.html", {"orders": Order.objects.order_by("-pk")[:10]})


@require_POST
def order(request: HttpRequest) -> HttpResponse:
    place_order(f"WEB-{uuid4().hex[:6]}")
    return redirect("index")
