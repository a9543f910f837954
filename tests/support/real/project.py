"""A small Django project as its manual would have it: people, Django's own admin, and a REST
interface on the same table.

Kept as texts, because Django is not installed where the tests run, and written into a folder of its
own for each test. People and admin are those of ``docs/guides/django-admin.md``.
"""

from pathlib import Path

from tests.support.guides import Guide

_SETTINGS = """\
from pathlib import Path

FOLDER = Path(__file__).parent
SECRET_KEY = "only-for-tests"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "urls"
USE_TZ = True
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "db.sqlite3"}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast; there is one account, for tests
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "rest_framework",
    "django_filters",
    "people",
    "papers",
]
MEDIA_ROOT = FOLDER / "media"
MEDIA_URL = "media/"
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
REST_FRAMEWORK = {
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PAGINATION_CLASS": "rest_framework.pagination.PageNumberPagination",
    "PAGE_SIZE": 3,
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
}
"""

_API = """\
from django.forms.models import model_to_dict
from rest_framework import serializers, viewsets

from people.models import Person, vip_without_phone


class PersonSerializer(serializers.ModelSerializer):
    class Meta:
        model = Person
        fields = ["id", "name", "email", "phone", "birth_date", "note", "city", "vip"]

    def validate(self, attrs):
        known = {**(model_to_dict(self.instance) if self.instance else {}), **attrs}
        if known.get("vip") and not known.get("phone"):
            raise serializers.ValidationError(vip_without_phone(known["name"], known["email"]))
        return attrs


class PersonViewSet(viewsets.ModelViewSet):
    queryset = Person.objects.all()
    serializer_class = PersonSerializer
    filterset_fields = ["email", "city"]
"""

#: Files that are kept under their names, listed and downloaded.
_PAPERS = """\
from django.core.validators import FileExtensionValidator
from django.db import models


class Paper(models.Model):
    title = models.CharField(max_length=100)
    scan = models.FileField(upload_to="scans", validators=[FileExtensionValidator(["pdf"])])
"""

_PAPER_VIEWS = """\
from django.forms import modelform_factory
from django.http import FileResponse, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template import Context, Template
from django.views.decorators.csrf import csrf_exempt

from papers.models import Paper

Form = modelform_factory(Paper, fields=["title", "scan"])
PAGE = Template(
    "<ul>{% for one in papers %}<li><a href='{{ one.scan.url }}'>{{ one.scan.name }}</a>"
    "<b>{{ one.title }}</b></li>{% endfor %}</ul><form method='post'>{{ form }}</form>"
)


@csrf_exempt
def papers(request):
    form = Form(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        return redirect(f"/papers/{form.save().pk}")
    page = {"papers": Paper.objects.order_by("pk"), "form": form}
    return HttpResponse(PAGE.render(Context(page)))


def paper(request, pk):
    return FileResponse(get_object_or_404(Paper, pk=pk).scan, as_attachment=True)
"""

_URLS = """\
from django.contrib import admin
from django.urls import include, path
from rest_framework.routers import DefaultRouter

from papers.views import paper, papers
from people.api import PersonViewSet

router = DefaultRouter()
router.register("people", PersonViewSet)
urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include(router.urls)),
    path("papers/", papers),
    path("papers/<int:pk>", paper),
]
"""

_PREPARE = """\
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"

import django

django.setup()

from django.contrib.auth.models import User
from django.core.management import call_command

call_command("migrate", run_syncdb=True, verbosity=0)
User.objects.create_superuser("editor", "", "correct horse")
"""

_WSGI = """\
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
"""

_FILES = {
    "settings.py": _SETTINGS, "urls.py": _URLS, "prepare.py": _PREPARE, "wsgi.py": _WSGI,
    "people/__init__.py": "", "people/api.py": _API,
    "papers/__init__.py": "", "papers/models.py": _PAPERS, "papers/views.py": _PAPER_VIEWS,
    **Guide.named("django-admin").files(),
}  # fmt: skip

#: The one account of the site.
USER, PASSWORD = "editor", "correct horse"


def write(folder: Path) -> None:
    """Write the project's files."""
    for name, text in _FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
