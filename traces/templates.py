"""Templates of the built-in prompts: what is asked about an entity, in three wordings.

`TEMPLATES[domain][wording]` is a tuple of templates, or one tuple for each kind of entity. `{0}` is the entity; of sql,
`{theme}` and `{tables}` are the schema, `{a}` and `{b}` its tables, `{m}` and `{g}` columns of theirs. The wordings
share no template. Spanish ones avoid `de` and `a` before an entity, which would merge with its article.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

__all__ = ["TEMPLATES", "Choices"]

Choices: TypeAlias = tuple[str, ...] | Mapping[str, tuple[str, ...]]  # by kind of entity

_LESSON = (
    "Write a lesson about {0} for high school students, with a comparison from everyday life and three review "
    "questions."
)


_CODE = "\n\n```python\n{0}\n```"
_PYTHON: dict[str, Choices] = {
    "plain": (
        "Complete this Python function. Write the whole function with comments, then explain step by step how it "
        "works, its running time, and show two more examples." + _CODE,
    ),
    "reworded": (
        "Write unit tests for the following Python function from what its docstring says, and only then an "
        "implementation that passes them." + _CODE,
        "Here is the beginning of a Python function. Finish it as briefly as you can, then rewrite it in a longer "
        "style, and say which version you would keep." + _CODE,
        "A beginner has to write the Python function below. Say in words what it must do, list the special cases, and "
        "end with the code." + _CODE,
    ),
    "spanish": (
        "Completa esta función de Python. Escribe la función entera con comentarios y después explica en español, paso "
        "a paso, cómo funciona." + _CODE,
        "Escribe el cuerpo de esta función de Python y explica en español qué hace cada línea, cuánto tarda y en qué "
        "casos especiales hay que pensar." + _CODE,
        "Un principiante debe escribir esta función de Python. Explícale en español qué se pide y qué casos especiales "
        "hay, y muéstrale el código." + _CODE,
    ),
}

_MATH: dict[str, Choices] = {
    "plain": (
        "{0} Show your work step by step and explain every step.",
        "{0} Solve it step by step, check the answer, and explain the idea behind the method.",
        "{0} Explain the solution to a student who finds mathematics difficult, with all steps.",
    ),
    "reworded": (
        "Estimate the result of this problem first, then compute it, and say how good the estimate was.\n\n{0}",
        "Write a dialogue between a tutor and a pupil who work on a problem until it is solved. The problem: {0}",
        "{0} Find the answer in two different ways and say which one you prefer.",
    ),
    "spanish": (
        "{0} Resuelve el problema y explica en español cada paso.",
        "Responde en español. {0} Comprueba la respuesta al final y explica la idea del método.",
        "Explica en español cómo se resuelve este problema, a un estudiante que tiene dificultades con las "
        "matemáticas: {0}",
    ),
}

_BIOLOGY: dict[str, Choices] = {
    "plain": {
        "part": (
            "Explain the structure and function of {0} in detail, and what happens to a cell when they fail.",
            _LESSON,
            "How were {0} discovered, and how do scientists study them today? Describe the methods.",
            "Describe how {0} work together with the rest of the cell, step by step.",
        ),
        "organ": (
            "Explain how {0} work, from their anatomy to the cells that do the work.",
            _LESSON,
            "Describe the evolution of {0} and how they differ among species.",
            "What problems can affect {0}, and how does the organism respond? Explain in detail.",
        ),
        "process": (
            "Explain {0} step by step, naming the molecules or structures involved.",
            _LESSON,
            "Why is {0} important, and what factors change its rate? Give examples from different organisms.",
            "Describe an experiment that demonstrates {0}: materials, procedure, expected results and explanation.",
        ),
        "organism": (
            "Describe the habitat, diet, behavior and life cycle of {0}.",
            "Explain the main adaptations of {0} and how each one helps them survive.",
            "What role do {0} play in their ecosystem, and what threatens them? Explain in detail.",
            "Write an article about how scientists study {0} and what they have learned.",
        ),
    },
    "reworded": (
        "Prepare me for an exam about {0}: ask five questions, from easy to hard, and give a full answer to each.",
        "Write the script of a short documentary about {0}: what the narrator says and what the viewer sees.",
        "Write a conversation between two biologists about {0} in which each of them gives evidence for an opinion.",
        "Make a glossary of ten terms that a reader needs for a text about {0}, with two sentences for each term.",
    ),
    "spanish": (
        "Explica en español, con detalle y con ejemplos, lo que un estudiante debe saber sobre {0}.",
        "Escribe en español una lección sobre {0} para alumnos de secundaria, con una comparación de la vida diaria y "
        "tres preguntas de repaso.",
        "¿Qué han descubierto los científicos sobre {0} y con qué métodos? Responde en español con varios párrafos.",
    ),
}

_CHEMISTRY: dict[str, Choices] = {
    "plain": (
        "Describe the structure, physical properties and main uses of {0}, and how it is made in industry.",
        "Write safety guidance for a laboratory that works with {0}: hazards, storage, protective equipment and "
        "spills.",
        "Explain how {0} reacts with common reagents and why, with at least two example reactions.",
        "A student must identify {0} in an unknown sample. Describe suitable laboratory methods and what each would "
        "show.",
        "Explain how the polarity and bonding of {0} determine its boiling point and its solubility in water.",
        "Describe the history, natural occurrence and environmental effects of {0} in several paragraphs.",
    ),
    "reworded": (
        "Write the entry on {0} in a pocket encyclopedia, then a quiz of four questions about it with answers.",
        "A teacher plans a demonstration with {0}. Is that a good idea? Discuss what could be shown, what could go "
        "wrong and what could be used instead.",
        "Write an interview with a chemist who has worked with {0} for twenty years.",
        "Compare {0} with two related substances: what they share, how they differ, and how that shows in their uses.",
    ),
    "spanish": (
        "Describe en español la estructura, las propiedades físicas y los usos principales de esta sustancia, y cómo "
        "se fabrica en la industria: {0}.",
        "Escribe en español las normas de seguridad de un laboratorio que trabaja con {0}: peligros, almacenamiento, "
        "equipo de protección y derrames.",
        "Explica en español cómo reacciona esta sustancia con los reactivos más comunes, con al menos dos ejemplos: "
        "{0}.",
        "Una muestra desconocida puede ser {0}. Describe en español los métodos de laboratorio que permiten "
        "comprobarlo y lo que mostraría cada uno.",
    ),
}

_MEDICINE: dict[str, Choices] = {
    "plain": (
        "Explain {0} to a medical student: causes, typical symptoms, how it is diagnosed, and how it is treated.",
        "A patient has just been told the diagnosis: {0}. Write a detailed leaflet about what it is, what to expect "
        "and how to live with it.",
        "Describe the risk factors and complications of {0}, and the tests a doctor would order, with reasons.",
        "Write a textbook paragraph on the mechanism of {0}, then compare two treatment options in detail.",
        "A nurse asks how to care for a patient with {0}. Describe monitoring, medication, and warning signs in "
        "detail.",
        "Summarize what is known about {0}: who gets it, how it develops over time, how it can be prevented, and the "
        "outlook.",
    ),
    "reworded": (
        "Write a conversation in which a doctor answers a worried family's questions about {0}.",
        "Make a set of eight flashcards about {0}, each with a question on the front and a full answer on the back.",
        "Tell the course of a fictional patient with {0}, from the first complaint to the last visit, as a case "
        "report.",
        "What do many people get wrong about {0}? Correct five misconceptions, with one paragraph for each.",
    ),
    "spanish": (
        "Explica en español este diagnóstico a un estudiante de medicina: {0}. Habla de las causas, los síntomas, las "
        "pruebas y el tratamiento.",
        "Un paciente acaba de recibir este diagnóstico: {0}. Escribe en español un folleto detallado sobre qué es, qué "
        "puede esperar y cómo vivir con ello.",
        "Una enfermera cuida a un paciente con este diagnóstico: {0}. Describe en español la vigilancia, la "
        "medicación y las señales de alarma.",
    ),
}

_PLAIN_SQL = (
    "Write a SQL query that shows, for every row of {a}, how many rows of {b} belong to it. Then explain every clause.",
    "Write CREATE TABLE statements for this schema with sensible types, keys and constraints, and explain your "
    "choices.",
    "Which rows of {a} have no {b} at all? Give two different SQL queries and compare their speed.",
    "Write a SQL query that ranks {a} by {m} within each {g}, using a window function, and explain how the window "
    "works.",
    "Write a SQL query for the average and maximum {m} per {g}, keeping only large groups, and explain WHERE against "
    "HAVING.",
    "Which indexes would you create on these tables, and why? Show the statements and an example query that profits.",
)
_SCHEMA = "A {theme} database has these tables:\n\n{tables}\n\n"
_TABLES = "These tables belong together ({theme}):\n\n{tables}\n\n"
_TABLAS = "Una base de datos sobre {theme} tiene estas tablas:\n\n{tables}\n\n"
_SQL: dict[str, Choices] = {
    "plain": tuple(_SCHEMA + question for question in _PLAIN_SQL),
    "reworded": (
        _TABLES + "Write a SQL view that joins {a} and {b}, then three short queries on the view, and say what each of "
        "them is good for.",
        _TABLES
        + "A colleague wants to delete a row of {a}. What should happen to its rows in {b}? Show the SQL for two "
        "ways to handle it and discuss both.",
        _TABLES
        + "Fill both tables with four plausible rows each by INSERT statements, then show a query together with "
        "the result that it returns on them.",
        _TABLES
        + "Document the schema for a new colleague: what each table is for, what each column means, and how {a} "
        "and {b} are linked.",
    ),
    "spanish": (
        _TABLAS + "Escribe una consulta SQL que muestre, para cada fila de {a}, cuántas filas de {b} le corresponden. "
        "Después explica en español cada cláusula.",
        _TABLAS
        + "Escribe las instrucciones CREATE TABLE de este esquema, con tipos, claves y restricciones adecuados, y "
        "explica en español tus decisiones.",
        _TABLAS
        + "¿Qué filas de {a} no tienen ninguna fila en {b}? Da dos consultas SQL distintas y compara en español "
        "su rapidez.",
    ),
}

_GENERAL: dict[str, Choices] = {
    "plain": {
        "history": (
            "Write an essay about {0}: how it began, the main events, and why it matters today.",
            "Explain the causes and consequences of {0} to a curious teenager.",
            "Describe daily life of ordinary people connected with {0}.",
            "What are common misunderstandings about {0}, and what do historians say?",
        ),
        "advice": (
            "Give detailed advice on {0}, with reasons for each suggestion.",
            "Write a friendly letter to a nephew about {0}, with a personal story.",
            "What mistakes do people make when {0}, and how can they be avoided?",
            "Make a four-week plan for {0} and explain the purpose of each week.",
        ),
        "explain": (
            "Explain {0} in simple words, then in more technical detail.",
            "Write a magazine article that explains {0}, with examples.",
            "A child asks {0}. Answer patiently, with a comparison from daily life.",
            "Describe {0} step by step, and mention how it was done a hundred years ago.",
        ),
        "story": (
            "Write a short story about {0}.",
            "Write the opening chapter of a novel about {0}, with dialogue.",
            "Write a bedtime story about {0}, with a gentle ending.",
            "Write a story about {0} in the form of diary entries.",
        ),
    },
    "reworded": {
        "history": (
            "Write a radio interview with a historian about {0}.",
            "Make a timeline of {0} with at least six entries and two sentences for each.",
            "Write what a museum guide tells visitors about {0} when they know nothing yet.",
        ),
        "advice": (
            "A newspaper column helps its readers with {0}. Write one reader's letter and the columnist's reply.",
            "List eight questions that people often ask about {0}, and answer each of them.",
            "Write a dialogue between a beginner and an expert about {0}.",
        ),
        "explain": (
            "Write a dialogue in which a class and its teacher find out together {0}.",
            "You give a public lecture on {0}. Write down what you say, with three examples.",
            "Make a quiz on {0}: five questions, each with a full answer.",
        ),
        "story": (
            "Write a scene of a play about {0}, with stage directions.",
            "Write a ballad in rhyming verses about {0}.",
            "Outline a film about {0}: the characters, three acts and the last scene.",
        ),
    },
    "spanish": {
        "history": (
            "Escribe en español un ensayo sobre {0}: los comienzos, los hechos principales y por qué importa hoy.",
            "Explica en español, para un adolescente curioso, lo más importante sobre {0}.",
            "¿Qué errores son frecuentes cuando se habla sobre {0}, y qué dicen los historiadores? Responde en "
            "español.",
        ),
        "advice": (
            "Da en español consejos detallados para {0}, con una razón para cada uno.",
            "Escribe en español una carta amistosa a un sobrino que quiere {0}, con una anécdota personal.",
            "¿Qué errores se cometen al {0} y cómo se pueden evitar? Responde en español.",
        ),
        "explain": (
            "Explica en español {0}, primero con palabras sencillas y después con más detalle.",
            "Escribe en español un artículo de revista que explique {0}, con ejemplos.",
            "Un niño pregunta {0}. Respóndele en español, con paciencia y con una comparación de la vida diaria.",
        ),
        "story": (
            "Escribe en español un cuento sobre {0}.",
            "Escribe en español el primer capítulo de una novela sobre {0}, con diálogos.",
            "Escribe en español un cuento para dormir sobre {0}, con un final tranquilo.",
        ),
    },
}

TEMPLATES: dict[str, dict[str, Choices]] = {
    "python": _PYTHON,
    "math": _MATH,
    "biology": _BIOLOGY,
    "chemistry": _CHEMISTRY,
    "medicine": _MEDICINE,
    "sql": _SQL,
    "general": _GENERAL,
}
