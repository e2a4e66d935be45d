/* Colours of code: comments, strings, numbers, keywords, and names that are called. They parse nothing. */
"use strict";

const setOf = text => new Set(text.trim().split(/\s+/));
const LANGUAGES = {
  c: setOf(`c h cc cpp c++ cxx hpp cs csharp java js javascript jsx mjs ts typescript tsx rs rust go golang swift kt
    kotlin scala php dart zig wgsl glsl hlsl metal cuda json jsonc json5 css scss less`),
  sh: setOf(`py python python3 sh bash zsh shell console fish rb ruby yaml yml toml ini conf r perl pl make makefile
    cmake dockerfile docker nix elixir ex julia jl powershell ps1`),
  sql: setOf(`sql mysql postgresql sqlite lua haskell hs ada vhdl`),
  html: setOf(`html xml svg vue xhtml`),
};
const KEYWORDS = setOf(`abstract and as asm assert async await begin bool boolean break byte case catch char class
  const constexpr continue crate def default defer del delete do done double dyn elif else elsif end enum esac except
  export extends extern false False fi final finally float fn for foreach from func function global go goto guard if
  impl implements import in include inline int interface internal is lambda let local long loop macro match mod module
  move mut mutable namespace new nil None not null nullptr of operator or override package pass private protected
  protocol pub public raise readonly ref require rescue return select self Self short signed sizeof static str string
  struct super switch template then this throw throws trait true True try type typedef typeof undefined union unless
  unsafe unsigned until use using val var virtual void volatile when where while with yield i8 i16 i32 i64 u8 u16 u32
  u64 f32 f64 usize`);
const SQL = setOf(`add all alter and as asc avg begin between by case check column commit constraint count create
  cross database default delete desc distinct drop else end exists foreign from full group having if in index inner
  insert into is join key left like limit max min not null offset on or order outer primary references right rollback
  select set sum table then top union unique update values view when where with`);

const COMMENTS = {
  c: /\/\/.*|\/\*[^]*?(?:\*\/|$)/,
  sh: /(?<!\S)#.*/,
  sql: /--.*|\/\*[^]*?(?:\*\/|$)/,
  html: /<!--[^]*?(?:-->|$)/,
};
const STRING = /"""[^]*?(?:"""|$)|"(?:\\.|[^"\\\n])*"?|`(?:\\[^]|[^`\\])*`?/;
const QUOTED = /'(?:\\.|[^'\\\n])*'?/;
const CHARACTER = /'(?:\\[^']+|[^'\\])'/; // of Rust, where an apostrophe also begins the name of a lifetime
const NUMBER = /\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*/;
const TAG = /<\/?[\w:-]+|\/?>/;

/* The parts of code that have colours, or nothing for a language whose code stays plain. */
function partsOf(language) {
  const kind = Object.keys(LANGUAGES).find(kind => LANGUAGES[kind].has(language));
  const quoted = /^(rs|rust)$/.test(language) ? CHARACTER : QUOTED;
  const tag = kind === "html" ? `(?<tag>${TAG.source})|` : "";
  return kind && new RegExp(`(?<comment>${COMMENTS[kind].source})|${tag}(?<string>${STRING.source}|${quoted.source})|` +
    `(?<number>${NUMBER.source})|(?<name>[A-Za-z_$][\\w$]*)(?<call>\\s?\\()?`, "g");
}

function kindOf({ comment, tag, string, number, name, call }, language) {
  if (name && !(language === "sql" ? SQL.has(name.toLowerCase()) : KEYWORDS.has(name))) return call ? "call" : "";
  return comment ? "comment" : string ? "string" : number ? "number" : tag || name ? "keyword" : "";
}

function diffLine(line) {
  return element("span", { className: { "+": "string", "-": "removed", "@": "keyword" }[line[0]] ?? "" }, line);
}

/* Longer code stays plain, because its colours are found again while it grows. */
const LONGEST_COLOURED = 20000;

/* Code as texts and coloured elements. */
function coloured(text, language) {
  if (text.length > LONGEST_COLOURED) return [text];
  const name = language.toLowerCase();
  if (name === "diff" || name === "patch") return text.split(/(?<=\n)/).map(diffLine);
  const rule = partsOf(name);
  if (!rule) return [text];
  const parts = [];
  let plain = 0;
  for (const found of text.matchAll(rule)) {
    const kind = kindOf(found.groups, name);
    if (!kind) continue;
    const shown = found.groups.name ?? found[0];
    parts.push(text.slice(plain, found.index), element("span", { className: kind }, shown));
    plain = found.index + shown.length;
  }
  return [...parts, text.slice(plain)];
}
