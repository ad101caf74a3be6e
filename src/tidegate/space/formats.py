"""Content types of the RDF world, and which of them a client gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Final

from pyoxigraph import (
    QueryBoolean,
    QueryResultsFormat,
    QuerySolutions,
    QueryTriples,
    RdfFormat,
    Triple,
    parse,
)

from tidegate.space.bounds import check_json, check_turtle, check_xml
from tidegate.space.errors import Fault, SpaceError, malformed
from tidegate.space.store import first_line

RESULTS_JSON: Final = "application/sparql-results+json"
NTRIPLES: Final = "application/n-triples"
TURTLE: Final = "text/turtle"
JSON_LD: Final = "application/ld+json"
SPARQL_QUERY: Final = "application/sparql-query"
SPARQL_UPDATE: Final = "application/sparql-update"

# In order of preference where a client does not mind. The second column are other names for the same.
RESULTS: Final = {
    RESULTS_JSON: QueryResultsFormat.JSON,
    "application/json": QueryResultsFormat.JSON,
    "application/sparql-results+xml": QueryResultsFormat.XML,
    "application/xml": QueryResultsFormat.XML,
    "text/csv": QueryResultsFormat.CSV,
    "text/tab-separated-values": QueryResultsFormat.TSV,
}
_ACCEPT: Final = 4096  # characters of an Accept header that are worth reading
GRAPHS: Final = {
    TURTLE: RdfFormat.TURTLE,
    "application/x-turtle": RdfFormat.TURTLE,
    NTRIPLES: RdfFormat.N_TRIPLES,
    "text/plain": RdfFormat.N_TRIPLES,
    JSON_LD: RdfFormat.JSON_LD,
    "application/json": RdfFormat.JSON_LD,
    "application/rdf+xml": RdfFormat.RDF_XML,
    "application/xml": RdfFormat.RDF_XML,
}


def plain_type(content_type: str | None) -> str:
    """Without parameters such as the charset."""
    return (content_type or "").partition(";")[0].strip().lower()


def negotiate(accept: str | None, offered: Sequence[str]) -> str:
    """The offered type that an Accept header likes most; raises `SpaceError` if it likes none."""
    if not accept or not accept.strip():
        return offered[0]
    if len(accept) > _ACCEPT:
        raise SpaceError(Fault.CONTENT_TYPE, f"an Accept of {len(accept)} characters", hint="name fewer types")
    best, best_quality = "", 0.0
    for name in offered:
        quality = _quality(accept, name)
        if quality > best_quality:
            best, best_quality = name, quality
    if not best:
        raise SpaceError(
            Fault.CONTENT_TYPE,
            f"{accept[:100]!r} is not offered",
            hint=f"accept one of {', '.join(offered)}: CONSTRUCT and DESCRIBE give RDF, SELECT and ASK results",
        )
    return best


def _quality(accept: str, name: str) -> float:
    """RFC 9110 section 12.5.1: the most specific range that matches decides."""
    found = (-1, 0.0)
    for part in accept.split(","):
        media, *parameters = (each.strip() for each in part.split(";"))
        media = media.lower()
        if media == name:
            rank = 2
        elif media.endswith("/*") and name.startswith(media[:-1]):
            rank = 1
        elif media == "*/*":
            rank = 0
        else:
            continue
        quality = 1.0
        for parameter in parameters:
            if parameter.lower().startswith("q="):
                try:
                    quality = min(1.0, max(0.0, float(parameter[2:])))
                except ValueError:
                    quality = 0.0
        found = max(found, (rank, quality))
    return found[1]


def read_triples(data: bytes, content_type: str | None) -> list[Triple]:
    """RDF in any of the types above; without one, Turtle, which N-Triples is, too."""
    name = plain_type(content_type) or TURTLE
    format_ = GRAPHS.get(name)
    if format_ is None:
        raise SpaceError(
            Fault.CONTENT_TYPE,
            f"{name!r} is no RDF that is understood",
            hint=f"send one of {', '.join(GRAPHS)}",
        )
    if format_ == RdfFormat.JSON_LD:
        check_json(data)
    elif format_ == RdfFormat.RDF_XML:
        check_xml(data)
    else:
        check_turtle(data)
    try:
        # Blank nodes are those of this document alone.
        found = list(parse(data, format_, without_named_graphs=True, rename_blank_nodes=True))
    except SyntaxError as error:
        hint = "check the data"
        if "LoadDocumentCallback" in str(error):
            hint = "a context of another place is not fetched: write it into the document"
        raise malformed(f"not {name}: {first_line(error)}", hint) from None
    except (ValueError, OSError) as error:
        raise malformed(f"not {name}: {first_line(error)}") from None
    return [each.triple for each in found]


def write_answer(
    answer: QuerySolutions | QueryBoolean | QueryTriples, content_type: str, output: BinaryIO
) -> None:
    if isinstance(answer, QueryTriples):
        answer.serialize(output, GRAPHS[content_type])
    elif isinstance(answer, QueryBoolean) and content_type in ("text/csv", "text/tab-separated-values"):
        output.write(b"true" if answer else b"false")  # SPARQL has no CSV for a yes or no
    else:
        answer.serialize(output, RESULTS[content_type])
