"""The model cards of a sweep's students, with their figures once they were measured."""

from __future__ import annotations

from pathlib import Path

from earmark.datasets.workspace import Workspace
from earmark.experiments.marks import MarkBook
from earmark.experiments.students import Student, student_scores
from earmark.networks.measured_card import named_metrics
from earmark.networks.model_card import StudentCard, read_card, write_card


def write_student_cards(workspace: Workspace, book: MarkBook) -> None:
    """Write the marks of students, by the labels as given, into the cards of their networks.

    Metrics are named after their split (``eval_lwlrap``). A student of whom only the scores are
    left has no card; one that shares its network with another, and differs by an offset to the
    scores, has none of its own.
    """
    found: dict[Path, dict[int, StudentCard]] = {}
    for student in dict.fromkeys(student for _, student in book.marks):
        made_by = student_scores(workspace, student).made_by
        if made_by is not None and student == student.trained:
            own = found.setdefault(workspace.model_folder(made_by.network), {})
            own[made_by.student] = StudentCard(name=student.name, metrics=_metrics(book, student))
    for folder, measured in found.items():
        if (folder / "card.json").exists():
            known = read_card(folder).students
            students = tuple(measured.get(place, one) for place, one in enumerate(known))
            if students != known:
                write_card(folder, workspace.ontology, students=students)


def _metrics(book: MarkBook, student: Student) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for basis in book.bases:
        if basis.labels == "given" and (basis, student) in book.marks:
            draws = book.marks[basis, student].draws
            overall = {name: own.value for name, own in draws.items()}
            metrics |= named_metrics(basis.split, overall)
    return metrics
