"""The form by which a person settles a doubt."""

from __future__ import annotations

from django import forms
from unfold.widgets import (  # type: ignore[import-untyped]
    UnfoldAdminRadioSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldBooleanWidget,
)

from c4a import canonical
from c4a.errors import InvalidArguments
from c4a.record.types import MAX_RESULT_BYTES
from ledger.results import result_codec


class ResolveForm(forms.Form):
    """A verdict on the attempt that was shown; a stale one is refused by the record."""

    attempt = forms.IntegerField(min_value=1, widget=forms.HiddenInput)
    verdict = forms.ChoiceField(
        label="Did it happen?",
        choices=(("done", "Done: it happened, never run it again"), ("not_done", "Not done: it did not happen, it may be tried again")),
        widget=UnfoldAdminRadioSelectWidget,
    )
    result = forms.CharField(
        label="Result (optional, JSON)",
        help_text="For done: what the agent gets as the action's result, such as the id the provider shows.",
        required=False,
        max_length=MAX_RESULT_BYTES,
        strip=True,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
    )
    note = forms.CharField(label="How do you know?", max_length=10_000, widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}))
    confirm_lapsed = forms.BooleanField(
        label="I made sure that it is not running any more",
        help_text="Needed for not done if the claim merely lapsed or was given up: the process may still be at it.",
        required=False,
        widget=UnfoldBooleanWidget,
    )
    new_outside_key = forms.BooleanField(
        label="Use a new idempotency key outside",
        help_text="For not done, if the provider would answer the old key with a stored failure.",
        required=False,
        widget=UnfoldBooleanWidget,
    )

    def clean_result(self) -> str | None:
        """Codec text of the JSON that was typed; None for none."""
        text: str = self.cleaned_data["result"]
        if not text:
            return None
        try:
            return result_codec(canonical.parse_json(text, root="result"))
        except InvalidArguments as error:
            raise forms.ValidationError(f"{error.message}. Text goes in quotation marks.") from None
