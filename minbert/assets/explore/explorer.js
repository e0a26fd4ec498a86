// Controls above a picture. The page asks for a picture with each move and shows the newest answer.
// `model` is a widget's (get, set, save_changes, send, on); without a kernel, `offline` below gives one that answers from frames.

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made && typeof value === "boolean") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
};

const page = Math.random().toString(36).slice(2, 8); // each explorer loads this script anew, and ids must differ
let made = 0;

const whole = (x) => Math.abs(x - Math.round(x)) < 1e-6;
const digits = (step) => [0, 1, 2, 3].find((count) => whole(step * 10 ** count)) ?? 4; // 0.25 has two

// Each kind of control: (control, change) -> { nodes, show(value), wide }
const KINDS = {
  slider(control, change, id) {
    const { low, high, step } = control.bounds;
    const input = element("input", { type: "range", min: low, max: high, step, id });
    const shown = element("output", { for: id });
    input.addEventListener("input", () => { show(+input.value); change(+input.value); });
    const show = (value) => { input.value = value; shown.textContent = value.toFixed(digits(step)); };
    return { nodes: [input, shown], show, focus: id };
  },
  span(control, change, id) {
    const { low, high, step } = control.bounds;
    const ends = ["low", "high"].map((end) => element("input", { type: "range", min: low, max: high, step, "aria-label": `${control.label}, ${end}`, id: `${id}-${end}` }));
    const shown = element("output");
    const read = () => ends.map((input) => +input.value);
    ends.forEach((input, place) => input.addEventListener("input", () => {
      const value = read();
      if (value[0] > value[1]) value[place] = value[1 - place];
      show(value);
      change(value);
    }));
    const show = (value) => { ends.forEach((input, place) => { input.value = value[place]; }); shown.textContent = value.map((part) => part.toFixed(digits(step))).join(" – "); };
    return { nodes: [element("span", { class: "mb-two", role: "group", "aria-label": control.label }, ...ends), shown], show };
  },
  choice(control, change, id) {
    const input = element("select", { id }, ...control.bounds.choices.map((name) => element("option", { value: name }, name)));
    input.addEventListener("change", () => change(input.value));
    return { nodes: [input], show: (value) => { input.value = value; }, focus: id };
  },
  text(control, change, id) {
    const input = element("input", { type: "text", id, autocomplete: "off", spellcheck: "false" });
    input.addEventListener("input", () => change(input.value));
    return { nodes: [input], show: (value) => { if (document.activeElement !== input) input.value = value; }, focus: id, wide: true };
  },
  switch(control, change, id) {
    const input = element("input", { type: "checkbox", id });
    input.addEventListener("change", () => change(input.checked));
    return { nodes: [input], show: (value) => { input.checked = value; }, focus: id };
  },
  words(control, change, id) { // a button a word; which words there are comes with each answer. `one`: at most one is pressed
    const group = element("span", { class: "mb-words", role: "group", "aria-label": control.label, "aria-describedby": `${id}-help` });
    let pressed = [], offered = [];
    const show = (value) => {
      pressed = [...value];
      [...group.children].forEach((button, place) => button.setAttribute("aria-pressed", String(pressed.includes(place))));
    };
    const offer = (words) => {
      if (JSON.stringify(words) === JSON.stringify(offered)) return;
      offered = words;
      group.replaceChildren(...words.map((word, place) => {
        const button = element("button", { type: "button" }, word);
        button.addEventListener("click", () => {
          const others = control.bounds.one ? [] : pressed.filter((other) => other !== place);
          show(pressed.includes(place) ? others : [...others, place].sort((a, b) => a - b));
          change(pressed);
        });
        return button;
      }));
      show(pressed);
    };
    return { nodes: [group], show, offer, wide: true };
  },
};

const row = (control, change) => {
  const id = `mb-${page}-${++made}`;
  const part = KINDS[control.kind](control, change, id);
  const name = part.focus ? element("label", { for: id }, control.label) : element("span", { class: "mb-name" }, control.label);
  const box = element("div", { class: "mb-row" + (part.wide ? " mb-wide" : ""), "data-name": control.name }, name, ...part.nodes);
  if (control.help) {
    box.append(element("span", { class: "mb-help", role: "tooltip", id: `${id}-help` }, control.help));
    for (const node of box.querySelectorAll("input, select")) node.setAttribute("aria-describedby", `${id}-help`);
  }
  return { box, show: part.show, offer: part.offer };
};

// Places on the picture and coordinates of a panel.
const inside = (place, share, turn) => {
  const [left, bottom, width, height] = place.box;
  const at = [(share[0] - left) / width, (1 - share[1] - bottom) / height];
  return turn(at);
};
const toData = (place, share) => inside(place, share, ([a, b]) => [place.x[0] + a * (place.x[1] - place.x[0]), place.y[0] + b * (place.y[1] - place.y[0])]);
const toShare = (place, [x, y]) => {
  const [left, bottom, width, height] = place.box;
  return [left + width * (x - place.x[0]) / (place.x[1] - place.x[0]), 1 - bottom - height * (y - place.y[0]) / (place.y[1] - place.y[0])];
};
const panelAt = (places, share) => places.findIndex((place) => inside(place, share, ([a, b]) => a >= 0 && a <= 1 && b >= 0 && b <= 1));
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

function handle(control, state, change) {
  const knob = element("div", { class: "mb-handle", role: "slider", tabindex: "0", "aria-label": control.label, title: control.help || control.label });
  const { panel, low, high, step } = control.bounds;
  const move = ([x, y]) => {
    const value = [clamp(x, low[0], high[0]), clamp(y, low[1], high[1])];
    show(value);
    change(value);
  };
  const show = (value) => {
    const place = state.places[panel];
    knob.setAttribute("aria-valuenow", value[0].toFixed(2));
    knob.setAttribute("aria-valuemin", low[0]);
    knob.setAttribute("aria-valuemax", high[0]);
    knob.setAttribute("aria-valuetext", `x ${value[0].toFixed(2)}, y ${value[1].toFixed(2)}`);
    knob.hidden = !place;
    if (!place) return;
    const [x, y] = toShare(place, value);
    knob.style.left = `${100 * x}%`;
    knob.style.top = `${100 * y}%`;
  };
  knob.addEventListener("pointerdown", (event) => { knob.setPointerCapture(event.pointerId); knob.classList.add("mb-held"); event.preventDefault(); knob.focus(); });
  knob.addEventListener("pointermove", (event) => { if (knob.classList.contains("mb-held")) move(toData(state.places[panel], state.share(event))); });
  for (const end of ["pointerup", "pointercancel"]) knob.addEventListener(end, () => knob.classList.remove("mb-held"));
  knob.addEventListener("keydown", (event) => {
    const arrow = ARROWS[event.key];
    if (!arrow) return;
    event.preventDefault();
    event.stopPropagation();
    const value = state.values[control.name];
    move([value[0] + arrow[0] * step, value[1] + arrow[1] * step]);
  });
  return { box: knob, show };
}

function picking(control, state, change) {
  state.stage.setAttribute("aria-label", control.label);
  const rest = (idle) => { // while a click changes nothing
    state.stage.tabIndex = idle ? -1 : 0;
    state.stage.setAttribute("role", idle ? "group" : "application");
    state.image.style.cursor = idle ? "" : "crosshair";
    state.resting = idle;
  };
  const at = (share) => {
    const panel = panelAt(state.places, share);
    if (panel >= 0 && !state.resting) change([panel, ...toData(state.places[panel], share)]);
  };
  state.image.addEventListener("click", (event) => at(state.share(event)));
  state.stage.addEventListener("keydown", (event) => {
    const arrow = ARROWS[event.key];
    if (!arrow || event.target !== state.stage || state.resting || !state.places.length) return;
    event.preventDefault();
    const now = state.values[control.name] || [control.bounds.panel, ...toData(state.places[control.bounds.panel], toShare(state.places[control.bounds.panel], middle(state.places[control.bounds.panel])))];
    const place = state.places[now[0]];
    const next = [0, 1].map((axis) => { const [low, high] = axis ? place.y : place.x; return now[axis + 1] + arrow[axis] * (high - low) / 40; });
    change([now[0], ...next]);
  });
  return { box: state.stage, show: () => {}, rest };
}
const middle = (place) => [(place.x[0] + place.x[1]) / 2, (place.y[0] + place.y[1]) / 2];

function hovering(state) {
  const tip = element("div", { class: "mb-tip", "aria-hidden": "true" });
  state.stage.append(tip);
  state.stage.addEventListener("pointermove", (event) => {
    const share = state.share(event), panel = panelAt(state.places, share);
    const [x, y] = panel < 0 ? [NaN, NaN] : toData(state.places[panel], share);
    const spot = (state.spots || []).find(([where, left, right, bottom, top]) => where === panel && x >= left && x < right && y >= bottom && y < top);
    tip.style.display = spot ? "block" : "none";
    if (!spot) return;
    tip.textContent = spot[5];
    tip.style.left = `${clamp(100 * share[0] + 2, 0, 70)}%`;
    tip.style.top = `${100 * share[1] + 3}%`;
  });
  state.stage.addEventListener("pointerleave", () => { tip.style.display = "none"; });
}

function render({ model, el }) {
  const spec = model.get("spec");
  const root = element("div", { class: "mb-explorer", role: "group", "aria-label": spec.title, "data-number": "0", "data-lm-suppress-shortcuts": "true" });
  root.addEventListener("keydown", (event) => event.stopPropagation()); // in a notebook an arrow key would fold the chapter instead
  const image = element("img", { alt: spec.title });
  const stage = element("div", { class: "mb-stage" }, image);
  const words = element("p", { class: "mb-text", "aria-live": "polite" });
  const state = { values: { ...model.get("values") }, places: [], spots: [], image, stage, share: (event) => { const box = image.getBoundingClientRect(); return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]; } };

  // One question at a time: while an answer is awaited, only the last move is kept.
  // Where the work behind a picture takes long, the answer is not ready: the page asks on, each time for a round of that work.
  // A picture that would be shown at less than three fifths of its size has letters too small to read: its panels go one above the other.
  let wide = 0, was = null; // pixels of the page that the picture takes with its panels in a row; how the last one was asked for
  const narrow = () => root.clientWidth > 0 && root.clientWidth < Math.max(560, 0.6 * wide);
  const turned = () => {
    root.dataset.width = root.clientWidth;
    if (!root.clientWidth || was === null || narrow() === was) return false;
    ask();
    return true;
  };
  let asked = 0, waiting = false, again = false, ready = true, address = null;
  const ask = (rounds = 0) => {
    if (waiting) { again = true; return; }
    waiting = true;
    root.dataset.asked = asked += 1;
    model.send({ number: asked, rounds, values: state.values, narrow: was = narrow(), ratio: window.devicePixelRatio || 1 });
  };
  const change = (name) => (value) => { state.values = { ...state.values, [name]: value }; ask(); };
  const rows = {};
  const controls = element("div", { class: "mb-controls" });
  for (const control of spec.controls) {
    if (control.kind === "pick") { rows[control.name] = picking(control, state, change(control.name)); continue; }
    const made = control.kind === "point" ? handle(control, state, change(control.name)) : row(control, change(control.name));
    rows[control.name] = made;
    (control.kind === "point" ? stage : controls).append(made.box);
  }
  hovering(state);
  root.append(controls, stage, words);
  el.append(root);

  const show = () => { for (const [name, made] of Object.entries(rows)) made.show(state.values[name]); };
  const answered = (content, buffers) => {
    waiting = false;
    ready = content.ready !== false;
    words.classList.toggle("mb-refused", Boolean(content.error));
    words.textContent = content.error || content.text;
    if (!content.error) {
      if (address) URL.revokeObjectURL(address);
      address = content.source ? null : URL.createObjectURL(new Blob([buffers[0]], { type: "image/png" }));
      image.src = content.source || address;
      stage.classList.toggle("mb-stored", (content.source || "").startsWith("data:image/webp"));
      image.alt = `${spec.title}. ${content.text}`;
      Object.assign(state, { places: content.places, spots: content.spots || [] });
      if (content.values && !again) { state.values = { ...state.values, ...content.values }; show(); } // drawn beforehand: the controls go to what the picture shows
      for (const control of spec.controls) if (control.kind === "point") rows[control.name].show(state.values[control.name]);
      for (const [name, made] of Object.entries(rows)) {
        const idle = (content.idle || []).includes(name);
        if (made.rest) made.rest(idle);
        else made.box.classList.toggle("mb-idle", idle);
      }
      for (const [name, words] of Object.entries(content.words || {})) rows[name].offer(words);
    }
    root.dataset.number = content.number;
    root.dataset.ready = ready;
    root.dataset.width = root.clientWidth;
    if (again) { again = false; ask(); }
    else if (!ready && root.clientWidth) ask(1); // a page that shows it no more asks no more
  };
  const heard = (content, buffers) => { if (content && content.number === asked) answered(content, buffers || []); };
  model.on("msg:custom", heard);
  const moved = () => {
    const values = model.get("values");
    if (JSON.stringify(values) === JSON.stringify(state.values) || waiting) return;
    state.values = { ...values };
    show();
    ask();
  };
  model.on("change:values", moved);
  show();
  ask();
  image.addEventListener("load", () => {
    stage.style.setProperty("--shape", image.naturalWidth / image.naturalHeight);
    if (was === false && address) { wide = image.naturalWidth / Math.min(2, Math.max(1, window.devicePixelRatio || 1)); turned(); }
  });
  const watch = new ResizeObserver(() => { if (!turned() && root.clientWidth && !ready && !waiting) ask(1); }); // a phone turned round
  watch.observe(root);
  return () => { watch.disconnect(); model.off("msg:custom", heard); model.off("change:values", moved); if (address) URL.revokeObjectURL(address); };
}

// A page without a kernel: `told` is { spec, values, frames: [{ values, source, places, text, spots }], narrow: [...] }.
// A move is answered by the frame whose values lie nearest; or by `told.draw(values, narrow)`, which gives one frame.
export function offline(told, el) {
  let listener = () => {};
  const distance = (control, a, b) => {
    if (typeof a === "number") return Math.abs(a - b) / (control.bounds.high - control.bounds.low || 1);
    if (control.kind === "words") return a.filter((place) => !b.includes(place)).length + b.filter((place) => !a.includes(place)).length;
    if (Array.isArray(a) && Array.isArray(b)) return a.reduce((sum, part, place) => sum + Math.abs(part - b[place]), 0);
    return a === b ? 0 : 10;
  };
  const nearest = (frames, values) => frames.reduce((best, frame) => {
    const far = told.spec.controls.reduce((sum, control) => sum + (control.name in frame.values ? distance(control, values[control.name], frame.values[control.name]) : 0), 0);
    return !best || far < best.far ? { frame, far } : best;
  }, null).frame;
  const model = {
    get: (name) => told[name],
    on: (name, listen) => { if (name === "msg:custom") listener = listen; },
    off: () => {},
    send: (question) => {
      if (told.draw) {
        setTimeout(() => listener({ number: question.number, ...told.draw(question.values, question.narrow) }, []), 0);
        return;
      }
      const frames = question.narrow && told.narrow && told.narrow.length ? told.narrow : told.frames;
      setTimeout(() => listener({ number: question.number, ...nearest(frames, question.values) }, []), 0);
    },
  };
  return render({ model, el });
}

export default { render };
