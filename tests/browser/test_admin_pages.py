"""The admin in a real browser: what an operator clicks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from reliable_messaging import enqueue, jobs, leases, outbox, timers
from reliable_messaging.models import Failure, Job, JobRun, OutboxMessage, Status
from tests.factories import OutboxMessageFactory

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def log_in(browser: Chrome, url: str) -> None:
    User.objects.create_superuser("admin", password="admin")
    browser.get(f"{url}/admin/")
    browser.find_element(By.NAME, "username").send_keys("admin")
    browser.find_element(By.NAME, "password").send_keys("admin")
    browser.find_element(By.CSS_SELECTOR, "[type=submit]").click()
    # A click does not wait for the answer: the next page would be asked for without the session.
    browser.find_element(By.ID, "user-tools")


def dead_message() -> OutboxMessage:
    row = OutboxMessageFactory.on(
        "default",
        topic="receipt.send",
        payload='{"order":7,"to":"ann@example.org"}',
        headers={"trace": "abc"},
        status=Status.DEAD,
        attempts=5,
        failures=5,
        finished_at=timezone.now(),
        last_error="SMTPException: mailbox unavailable",
        correlation_id="order 7",
    )
    Failure.objects.create(
        item_id=row.pk,
        fingerprint="f",
        kind=0,
        count=5,
        attempt=5,
        error_class="SMTPException",
        message="mailbox unavailable",
        traceback="Traceback (most recent call last):\n  …",
    )
    return row


def test_an_operator_requeues_a_dead_message(live_server: Any, browser: Chrome, pictures: Path) -> None:
    """Filter the dead ones, look at one with its failures, go back, select it, requeue it."""
    row = dead_message()
    enqueue("order.created", {"order": 8}, delay=600)
    log_in(browser, live_server.url)
    browser.get(f"{live_server.url}/admin/reliable_messaging/outboxmessage/?status__exact=3")
    browser.save_screenshot(str(pictures / "outbox-list.png"))
    browser.find_element(By.LINK_TEXT, str(row.pk)).click()
    browser.find_element(By.TAG_NAME, "summary").click()
    browser.save_screenshot(str(pictures / "outbox-message.png"))
    page = browser.find_element(By.ID, "content").text
    assert "mailbox unavailable" in page
    assert '"to": "ann@example.org"' in page
    assert "Traceback (most recent call last)" in page
    browser.back()
    choose(browser, "requeue")
    WebDriverWait(browser, 10).until(lambda b: "Requeued: 1 outbox message." in b.page_source)
    browser.save_screenshot(str(pictures / "outbox-requeued.png"))
    row.refresh_from_db()
    assert row.status == Status.READY
    assert [item.id for item in outbox.queue.claim(limit=5)] == [row.pk]


def choose(browser: Chrome, action: str) -> None:
    browser.find_element(By.NAME, "_selected_action").click()
    Select(browser.find_element(By.NAME, "action")).select_by_value(action)
    browser.find_element(By.NAME, "index").click()


def test_an_operator_cancels_a_timer(live_server: Any, browser: Chrome, pictures: Path) -> None:
    """Find it by its name, look at it, go back, cancel it."""
    timer = timers.schedule("order.remind", {"order": 7}, delay=3600, name="remind-7", queue="mail")
    timers.schedule("report.build", delay=600)
    log_in(browser, live_server.url)
    browser.get(f"{live_server.url}/admin/reliable_messaging/timer/")
    browser.save_screenshot(str(pictures / "timer-list.png"))
    browser.get(f"{live_server.url}/admin/reliable_messaging/timer/?q=remind-7")
    browser.find_element(By.LINK_TEXT, str(timer.pk)).click()
    browser.save_screenshot(str(pictures / "timer.png"))
    assert '"order": 7' in browser.find_element(By.ID, "content").text
    browser.back()
    choose(browser, "cancel")
    WebDriverWait(browser, 10).until(lambda b: "Cancelled: 1 timer." in b.page_source)
    timer.refresh_from_db()
    assert timer.status == Status.CANCELLED


def test_an_operator_takes_a_lease_away(live_server: Any, browser: Chrome, pictures: Path) -> None:
    """See who has it, and make it free."""
    assert leases.acquire("nightly-report", owner="worker-3")
    log_in(browser, live_server.url)
    browser.get(f"{live_server.url}/admin/reliable_messaging/lease/")
    browser.save_screenshot(str(pictures / "lease-list.png"))
    assert "worker-3" in browser.find_element(By.ID, "content").text
    choose(browser, "release")
    WebDriverWait(browser, 10).until(lambda b: "1 lease was taken away." in b.page_source)
    assert leases.holder("nightly-report") is None


def test_an_operator_runs_and_disables_a_job(live_server: Any, browser: Chrome, pictures: Path) -> None:
    """Mend a form with an error, run the job now, see how that ended, and disable it."""
    jobs.create_or_update("report.nightly", topic="report.build", cron="30 2 * * *", timezone="Europe/Berlin")
    jobs.create_or_update("mail.digest", topic="mail.digest", cron="*/5 * * * *", overlap="queue")
    log_in(browser, live_server.url)
    browser.get(f"{live_server.url}/admin/reliable_messaging/job/report.nightly/change/")
    change(browser, "cron", "0 0 30 2 *")
    browser.save_screenshot(str(pictures / "job-error.png"))
    assert "never fires" in browser.find_element(By.CSS_SELECTOR, ".field-cron .errorlist").text
    change(browser, "cron", "0 3 * * mon-fri")
    assert "was changed successfully" in browser.find_element(By.CLASS_NAME, "success").text
    browser.get(f"{live_server.url}/admin/reliable_messaging/job/?q=report")
    choose(browser, "run_now")
    WebDriverWait(browser, 10).until(lambda b: "Run now: 1 job." in b.page_source)
    run = JobRun.objects.get()
    jobs.fire_all_due()
    outbox.queue.fail(outbox.queue.claim(), ValueError("no data for last night"))
    jobs.trigger("mail.digest")
    jobs.fire_all_due()
    outbox.queue.claim()
    jobs.trigger("mail.digest")
    browser.get(f"{live_server.url}/admin/reliable_messaging/jobrun/")
    browser.save_screenshot(str(pictures / "run-list.png"))
    assert "no data for last night" in browser.find_element(By.ID, "content").text
    browser.find_element(By.LINK_TEXT, str(run.pk)).click()
    browser.save_screenshot(str(pictures / "run.png"))
    browser.get(f"{live_server.url}/admin/reliable_messaging/job/")
    browser.save_screenshot(str(pictures / "job-list.png"))
    choose(browser, "disable")
    WebDriverWait(browser, 10).until(lambda b: "Disabled: 1 job." in b.page_source)
    assert not Job.objects.get(pk="mail.digest").enabled


def change(browser: Chrome, field: str, value: str) -> None:
    box = browser.find_element(By.NAME, field)
    box.clear()
    box.send_keys(value)
    browser.find_element(By.NAME, "_save").click()
    browser.find_element(By.CSS_SELECTOR, ".errornote, .messagelist")
