/* Markdown as elements. The library parses, and every text becomes a text node: none can become markup. */
"use strict";

const isText = value => typeof value === "string";

/* An element with these properties and children, which are elements or texts. */
function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const parser = markdownit({ breaks: true, linkify: true });
parser.validateLink = address => /^(https?:\/\/|mailto:)/i.test(address);
parser.linkify.set({ fuzzyLink: false }); // `main.rs` is no address, although .rs is a country

/* A star between letters or digits multiplies, as in `2*3*4` and `a*b*c`, and so do two between digits. Words that are
   bold in part have two: `**N**orth`. */
const scan = parser.inline.State.prototype.scanDelims;
parser.inline.State.prototype.scanDelims = function (start, canSplitWord) {
  const found = scan.call(this, start, canSplitWord);
  const around = this.src.slice(start - 1, start) + this.src.slice(start + found.length, start + found.length + 1);
  const multiplies = this.src[start] === "*" && (found.length === 1 ? /^\w\w$/ : /^\d\d$/).test(around);
  return multiplies ? { ...found, can_open: false, can_close: false } : found;
};

/* `<br>` is the only tag that is followed: in a table there is no other way to begin a line. */
parser.inline.ruler.before("autolink", "br", (state, silent) => {
  const tag = /^<br ?\/?>/i.exec(state.src.slice(state.pos, state.pos + 6));
  if (!tag) return false;
  if (!silent) state.push("hardbreak", "br", 0);
  state.pos += tag[0].length;
  return true;
});

const LONGEST_FORMULA = 2000;

/* Formulas between \( \), \[ \] or $$ $$ are shown as they were written: in them, `_` and `*` are no markup. */
parser.inline.ruler.before("escape", "formula", (state, silent) => {
  const close = { "\\(": "\\)", "\\[": "\\]", "$$": "$$" }[state.src.slice(state.pos, state.pos + 2)];
  const near = state.src.slice(state.pos, Math.min(state.pos + LONGEST_FORMULA, state.posMax));
  const end = close ? near.indexOf(close, 2) + 2 : 0;
  if (end < 3) return false;
  if (!silent) state.push("formula", "code", 0).content = near.slice(0, end);
  state.pos += end;
  return true;
});

/* Deeper elements than these are put beside each other: a browser may fail to draw thousands in each other. */
const DEEPEST = 60;

function link(address, text = []) {
  const rel = "noopener noreferrer nofollow";
  return element("a", { href: address, title: address, rel, target: "_blank" }, ...text);
}

/* The element that a token begins. */
function opened(token) {
  if (token.tag === "a") return link(token.attrGet("href"));
  const heading = /^h(\d)$/.exec(token.tag);
  const made = element(heading ? "h" + Math.min(Number(heading[1]) + 1, 6) : token.tag);
  if (token.attrGet("start") !== null) made.start = token.attrGet("start");
  const align = /text-align:(\w+)/.exec(token.attrGet("style") ?? "");
  if (align) made.style.textAlign = align[1];
  return made;
}

function copyButton(text, label) {
  const button = element("button", { type: "button", className: "quiet", ariaLabel: label }, "Copy");
  button.onclick = async () => {
    button.textContent = await copied(text()) ? "Copied" : "Not allowed";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  return button;
}

/* Copies a text. Browsers offer the first way only to pages over https or from this machine. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element("textarea", { value: text, className: "hidden" });
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

const languageOf = fence => fence.info.trim().split(/\s/)[0];

/* A block of code. It can grow: `update` draws a longer form of it. */
function codeBlock(fence) {
  const code = element("code");
  let text;
  const update = ({ content }) => {
    text = content.replace(/\n$/, "");
    replaceParts(code, coloured(text, languageOf(fence)));
  };
  update(fence);
  const copy = copyButton(() => text, "Copy the code");
  const head = element("div", { className: "head" }, element("span", {}, languageOf(fence)), copy);
  return element("div", { className: "block", update }, head, element("pre", { tabIndex: 0 }, code));
}

/* Gives an element other children, which are texts and elements of one text. Those at its beginning that are the same
   stay, and so does what the user has selected in them. */
function replaceParts(box, parts) {
  const old = [...box.childNodes];
  const same = (node, part) => node?.textContent === (part.textContent ?? part) && node.className === part.className;
  let at = 0;
  while (at < parts.length && same(old[at], parts[at])) at++;
  const [last, next] = [old[at], parts[at]];
  if (isText(last?.data) && isText(next)) {
    if (next.startsWith(last.data)) last.appendData(next.slice(last.data.length));
    else if (last.data.startsWith(next)) last.deleteData(next.length, last.data.length - next.length);
    if (last.data === next) at++;
  }
  for (const node of old.slice(at)) node.remove();
  box.append(...parts.slice(at));
}

/* The elements of a token without others inside. */
function leaf(token) {
  switch (token.type) {
    case "inline": return built(token.children);
    case "softbreak": case "hardbreak": return [element("br")];
    case "hr": return [element("hr")];
    case "code_inline": return [element("code", {}, token.content)];
    case "formula": return [element("code", { className: "formula" }, token.content)];
    case "fence": case "code_block": return [codeBlock(token)];
    // A picture would tell its server who reads the reply.
    case "image": return [link(token.attrGet("src"), [token.content || token.attrGet("src")])];
    default: return [token.content];
  }
}

/* The checkbox of an item of a list that begins with `[ ]` or `[x]`, whose mark is taken out of the text. */
function checkbox(token) {
  const first = token.type === "inline" && token.children[0];
  const mark = first && first.type === "text" && /^\[([ xX])\]\s+/.exec(first.content);
  if (!mark) return [];
  first.content = first.content.slice(mark[0].length);
  const ariaLabel = token.children.map(part => part.content).join("");
  return [element("input", { type: "checkbox", disabled: true, checked: mark[1] !== " ", ariaLabel }), " "];
}

function built(tokens) {
  const made = [];
  const open = [{ append: (...parts) => made.push(...parts) }];
  tokens.forEach((token, at) => {
    const into = open.at(-1);
    if (token.nesting < 0) open.pop();
    else if (token.nesting === 0) {
      if (tokens[at - 2]?.type === "list_item_open") into.append(...checkbox(token));
      into.append(...leaf(token));
    } else if (token.hidden || open.length > DEEPEST) open.push(into);
    else {
      const child = opened(token);
      into.append(token.tag === "table" ? element("div", { className: "wide" }, child) : child);
      open.push(child);
    }
  });
  return made;
}

/* The blocks of a text at its top level: the lines of each and its tokens. */
function blocks(source, env = {}) {
  const found = [];
  for (const token of parser.parse(source, env)) {
    if (token.level === 0 && token.nesting >= 0) found.push({ from: token.map[0], to: token.map[1], tokens: [] });
    found.at(-1).tokens.push(token);
  }
  return found;
}

function markdown(source) {
  return blocks(source).flatMap(block => built(block.tokens));
}

/* Draws a text that grows. What comes next can change its last two blocks only, so the others are not parsed again, and
   a block whose source is the same keeps its elements, and with them what the user has selected. */
class Drawing {
  constructor(box) {
    this.box = box;
    this.drawn = [];  // each block's source and elements
    this.settled = 0; // the number of blocks that no longer change
    this.offset = 0;  // where the text of the others begins
  }
  /* Returns the elements of blocks that are new among the settled ones. */
  draw(text, whole) {
    const spoken = this.settled;
    if (whole) [this.settled, this.offset] = [0, 0];
    const source = text.slice(this.offset);
    const lines = source.split("\n");
    const env = {};
    const found = blocks(source, env);
    if (whole && env.references) this.forget(0); // earlier blocks may use links that later ones define
    found.forEach((block, at) => this.place(this.settled + at, lines.slice(block.from, block.to).join("\n"), block));
    this.forget(this.settled + found.length);
    const more = Math.max(whole ? found.length : found.length - 2, 0);
    if (more && !whole) {
      const from = found[more].from;
      this.offset += lines.slice(0, from).join("\n").length + 1;
    }
    this.settled += more;
    return this.drawn.slice(spoken, this.settled).flatMap(block => block.elements);
  }
  place(at, source, block) {
    const old = this.drawn[at];
    if (old?.source === source) return;
    const [token, ...others] = block.tokens;
    if (token.type === "fence" && !others.length && old?.info === token.info) {
      old.elements[0].update(token);
      old.source = source;
      return;
    }
    const elements = built(block.tokens);
    if (old) {
      old.elements[0].before(...elements);
      for (const node of old.elements) node.remove();
    } else this.box.append(...elements);
    this.drawn[at] = { source, elements, info: token.type === "fence" ? token.info : undefined };
  }
  forget(from) {
    for (const block of this.drawn.splice(from)) for (const node of block.elements) node.remove();
  }
}
