"""Exercises and quizzes on the pages, with the keyboard alone and without JavaScript."""

from tests.site.conftest import fresh_page, visiting

CHAPTER = "chapters/01_preliminaries.html"
RIGHT = "b"
"""The answer to the first question of that chapter's quiz."""


def test_quiz_is_answered_with_the_keyboard(browser, address):
    with visiting(browser, address, 390) as (page, problems):
        page.goto(address + CHAPTER)
        first = page.locator(".rm-quiz > ol > li").first
        told = first.get_by_role("status")
        group = first.get_by_role("group")  # a fieldset, named by its question
        assert group.locator("legend").inner_text().startswith("1. ")
        check = first.get_by_role("button", name="Check")
        check.press("Enter")
        assert "Choose" in told.inner_text()
        group.get_by_role("radio").first.press("Space")
        page.keyboard.press("Tab")  # from the radio group to its button
        page.keyboard.press("Enter")
        assert told.inner_text().startswith("Not a)")
        group.get_by_role("radio").first.press("ArrowDown")
        assert group.locator("input:checked").get_attribute("value") == RIGHT
        check.press("Enter")
        assert told.inner_text().startswith("Right. ") and f"{RIGHT})" not in told.inner_text()
        assert page.locator(".rm-quiz input[type=radio]").count() == 9
    assert not problems


def test_quiz_without_javascript_has_its_answers_in_a_fold_out(browser, address):
    page = fresh_page(browser, java_script_enabled=False)
    page.goto(address + CHAPTER)
    quiz = page.locator(".rm-quiz")
    assert quiz.locator(":scope > ol > li").count() == 3
    answers = quiz.locator("details")
    assert not answers.locator("li").first.is_visible()
    answers.locator("summary").click()
    assert answers.locator("li").first.inner_text().startswith(f"{RIGHT}) ")
    page.context.close()


def test_solutions_are_hidden_until_they_are_asked_for(browser, address):
    with visiting(browser, address, 1200) as (page, problems):
        page.goto(address + CHAPTER)
        solutions = page.locator("div.solution")
        assert solutions.count() == page.locator("div.exercise").count() >= 3
        text = solutions.first.locator("p:not(.admonition-title)").first
        assert not text.is_visible()
        solutions.first.locator("button").press("Enter")
        assert text.is_visible()
    assert not problems
