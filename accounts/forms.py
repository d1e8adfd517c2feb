"""Forms of the sign-in pages."""

from __future__ import annotations

from django import forms
from django.contrib.auth import authenticate
from django.http import HttpRequest

from accounts.models import User


class SignInForm(forms.Form):
    """E-mail address and password. Its one error says nothing about which of them was wrong."""

    email = forms.EmailField(
        label="E-mail address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
    )
    password = forms.CharField(strip=False, max_length=1024, widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}))

    def user(self, request: HttpRequest) -> User | None:
        """The user, if both are right and the user is active."""
        user = authenticate(request, username=self.cleaned_data["email"].lower(), password=self.cleaned_data["password"])
        return user if isinstance(user, User) else None
