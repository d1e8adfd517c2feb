"""Addresses of the sign-in pages."""

from django.urls import path

from accounts import views

urlpatterns = [
    path("sign-in", views.sign_in, name="accounts-sign-in"),
    path("sign-in/link/<str:token>", views.sign_in_link, name="accounts-sign-in-link"),
    path("password", views.password, name="accounts-password"),
    path("sign-out", views.sign_out, name="accounts-sign-out"),
]
