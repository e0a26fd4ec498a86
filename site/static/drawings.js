// Explorers on a page without a kernel: their pictures are computed here, from numbers that scripts/site_explorers.py stored.
// Each entry of DRAW is (data, values, narrow) => { source, places, text, idle }, and says in `text` what the Python explorer says.
(() => {
  const GREY = "#777777";
  const fixed = (value, digits) => value.toFixed(digits);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const general = (value) => String(+value.toPrecision(6));
  const safe = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");

  // ---- a sheet with panels, as SVG
  const steps = (low, high, wanted = 5) => {
    const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((part) => part * power >= rough) * power, found = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at += 1) found.push([at * step, general(+(at * step).toFixed(10)).replace("-", "−")]);
    return found;
  };

  // Shapes of dots, from the middle on: a short line with a round or square end, or strokes. Groups stay apart without their colours.
  const MARKS = {
    round: () => "h.01",
    square: () => "h.01",
    cross: (size) => `m${-size / 2} ${-size / 2}l${size} ${size}m${-size} 0l${size} ${-size}`,
    diamond: (size) => `m0 ${-0.7 * size}l${0.7 * size} ${0.7 * size}l${-0.7 * size} ${0.7 * size}l${-0.7 * size} ${-0.7 * size}z`,
    triangle: (size) => `m0 ${-0.65 * size}l${0.6 * size} ${size}h${-1.2 * size}z`,
  };
  const drawn = (shape, size, colour) => `fill="none" stroke="${colour}" ` + (MARKS[shape].length ? 'stroke-width="1.1"' : `stroke-width="${size}" stroke-linecap="${shape}"`);

  class Sheet {
    constructor(narrow, count) {
      [this.columns, this.width] = narrow ? [1, 360] : [count, 760];
      this.cell = [this.width / this.columns, narrow ? 300 : count === 3 ? 280 : 340];
      this.height = this.cell[1] * (narrow ? count : 1);
      [this.parts, this.places, this.made] = [[], [], 0];
    }

    panel({ x, y, xlabel = "", ylabel = "", title = "", xticks, yticks, log = false, equal = false, bare = false }) {
      const number = this.made++, [w, h] = this.cell;
      const left = (number % this.columns) * w + 46, top = Math.floor(number / this.columns) * h + 26;
      let [width, height] = [w - 58, h - 68];
      if (equal) { // one scale for both: widen the shorter range
        const scale = Math.max((x[1] - x[0]) / width, (y[1] - y[0]) / height);
        const wider = ([low, high], size) => { const middle = (low + high) / 2; return [middle - scale * size / 2, middle + scale * size / 2]; };
        [x, y] = [wider(x, width), wider(y, height)];
      }
      const scaled = log ? Math.log10 : (value) => value, [low, high] = y.map(scaled);
      const at = ([a, b]) => [left + width * (a - x[0]) / (x[1] - x[0]), top + height * (1 - (scaled(b) - low) / (high - low))];
      const show = (pair) => pair.map((part) => +part.toFixed(1)).join(" ");
      const put = (text) => this.parts.push(text), clip = `clip-path="url(#c${number})"`;
      put(`<clipPath id="c${number}"><rect x="${left}" y="${top}" width="${width}" height="${height}"/></clipPath>`);
      put(`<text x="${left + width / 2}" y="${top - 9}" text-anchor="middle" font-size="11">${safe(title)}</text>`);
      if (!bare) {
        for (const [place, name] of xticks || steps(...x)) {
          const px = at([place, y[0]])[0];
          put(`<path d="M${px} ${top}v${height}" stroke="#e4e4e4"/><text x="${px}" y="${top + height + 14}" text-anchor="middle" font-size="10">${safe(name)}</text>`);
        }
        for (const [place, name] of yticks || steps(...y)) {
          const py = at([x[0], place])[1];
          put(`<path d="M${left} ${py}h${width}" stroke="#e4e4e4"/><text x="${left - 4}" y="${py + 3}" text-anchor="end" font-size="10">${safe(name)}</text>`);
        }
        put(`<path d="M${left} ${top}v${height}h${width}" fill="none" stroke="#333"/>`);
      }
      put(`<text x="${left + width / 2}" y="${top + height + 30}" text-anchor="middle" font-size="11">${safe(xlabel)}</text>`);
      put(`<text transform="translate(${left - 33} ${top + height / 2}) rotate(-90)" text-anchor="middle" font-size="11">${safe(ylabel)}</text>`);
      this.places.push({ box: [left / this.width, 1 - (top + height) / this.height, width / this.width, height / this.height], x, y });
      let labels = 0;
      return {
        x, y,
        line(points, colour, { dash = "", width: thick = 1.6, fill = "none", opacity = 1 } = {}) {
          put(`<path ${clip} d="M${points.map((pair) => show(at(pair))).join("L")}" fill="${fill}" fill-opacity="${opacity}" stroke="${colour}" stroke-width="${thick}" stroke-dasharray="${dash}"/>`);
        },
        dots(points, colour, size, opacity = 1, shape = "round") { // all in one path
          put(`<path ${clip} ${drawn(shape, size, colour)} d="${points.map((pair) => `M${show(at(pair))}${MARKS[shape](size)}`).join("")}" stroke-opacity="${opacity}"/>`);
        },
        ring(pair, colour) { const [px, py] = at(pair); put(`<circle cx="${px}" cy="${py}" r="6" fill="none" stroke="${colour}" stroke-width="2"/>`); },
        cross(pair) { const [px, py] = at(pair); put(`<path d="M${px - 6} ${py}h12M${px} ${py - 6}v12" stroke="#222" stroke-width="2"/>`); },
        ellipse([cx, cy], [rx, ry], degrees, colour) {
          const [px, py] = at([cx, cy]), [sx, sy] = [width / (x[1] - x[0]), height / (y[1] - y[0])];
          put(`<g ${clip}><ellipse transform="translate(${px} ${py}) rotate(${-degrees})" rx="${rx * sx}" ry="${ry * sy}" fill="none" stroke="${colour}" stroke-width=".8"/></g>`);
        },
        arrow(from, to, colour) {
          const [a, b] = [at(from), at(to)], turn = Math.atan2(b[1] - a[1], b[0] - a[0]);
          const head = [2.7, -2.7].map((part) => show([b[0] + 9 * Math.cos(turn + part), b[1] + 9 * Math.sin(turn + part)]));
          put(`<path d="M${show(a)}L${show(b)}M${head[0]}L${show(b)}L${head[1]}" fill="none" stroke="${colour}" stroke-width="2.5"/>`);
        },
        text(pair, words, { anchor = "start", size = 10, colour = "#222", plate = false } = {}) {
          const [px, py] = at(pair);
          put(`<text x="${px}" y="${py}" text-anchor="${anchor}" font-size="${size}" fill="${colour}"${plate ? ' stroke="white" stroke-width="3" paint-order="stroke"' : ""}>${safe(words)}</text>`);
        },
        legend(name, colour, dash = "", right = true, shape = "") { // beside a line, a dot of some shape (dash is null), or a line with dots
          const py = top + 12 + 14 * labels++, px = right ? left + width - 8 : left + 8, start = right ? px - 20 : px;
          put((dash === null ? "" : `<path d="M${start} ${py - 3}h20" stroke="${colour}" stroke-width="2.5" stroke-dasharray="${dash}"/>`)
            + (shape ? `<path ${drawn(shape, 6, colour)} d="M${start + 10} ${py - 3}${MARKS[shape](6)}"/>` : "")
            + `<text x="${right ? px - 25 : px + 25}" y="${py}" text-anchor="${right ? "end" : "start"}" font-size="10" stroke="white" stroke-width="3" paint-order="stroke">${safe(name)}</text>`);
        },
      };
    }

    done(text, idle = []) {
      const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}" font-family="system-ui, sans-serif"><rect width="100%" height="100%" fill="white"/>${this.parts.join("")}</svg>`;
      return { source: `data:image/svg+xml,${encodeURIComponent(svg)}`, places: this.places, spots: [], text, idle };
    }
  }

  // ---- cosines by grade
  const ranks = (values) => {
    const order = values.map((value, place) => [value, place]).sort((a, b) => a[0] - b[0]), found = Array(values.length);
    for (let start = 0; start < order.length;) {
      let end = start;
      while (end + 1 < order.length && order[end + 1][0] === order[start][0]) end += 1;
      for (let at = start; at <= end; at += 1) found[order[at][1]] = (start + end) / 2;
      start = end + 1;
    }
    return found;
  };
  const spearman = (a, b) => {
    const [u, v] = [ranks(a), ranks(b)], [mu, mv] = [mean(u), mean(v)];
    const product = (s, ms, t, mt) => s.reduce((sum, value, place) => sum + (value - ms) * (t[place] - mt), 0);
    return product(u, mu, v, mv) / Math.sqrt(product(u, mu, u, mu) * product(v, mv, v, mv));
  };

  const BARS = 50, kernels = new Map();
  const kernel = (smoothing) => { // of a bell curve folded back at -1 and 1; each column adds up to 1
    if (kernels.has(smoothing)) return kernels.get(smoothing);
    const size = 8 * BARS, at = Array.from({ length: size }, (_, place) => -1 + (2 * place + 1) / size);
    const columns = at.map((from) => {
      const column = at.map((to) => [from, 2 - from, -2 - from].reduce((sum, image) => sum + Math.exp(-0.5 * ((to - image) / smoothing) ** 2), 0));
      const total = column.reduce((sum, part) => sum + part, 0);
      return column.map((part) => part / total);
    });
    kernels.set(smoothing, columns);
    return columns;
  };
  const ridge = (cosines, smoothing) => { // -> [[cosine, percent per bar]]
    const fine = smoothing ? 8 : 1, size = BARS * fine, counts = Array(size).fill(0);
    for (const cosine of cosines) counts[Math.min(size - 1, Math.max(0, Math.floor((cosine + 1) / 2 * size)))] += 100 * fine / cosines.length;
    if (!smoothing) return counts.flatMap((share, place) => [[-1 + 2 * place / size, share], [-1 + 2 * (place + 1) / size, share]]);
    const columns = kernel(smoothing), smooth = Array(size).fill(0);
    counts.forEach((share, from) => { if (share) for (let to = 0; to < size; to += 1) smooth[to] += share * columns[from][to]; });
    return smooth.map((share, place) => [-1 + (2 * place + 1) / size, share]);
  };
  const BANDS = [["#8e5bb5", "6 3"], ["#49b3c9", "7 3 2 3"], ["#2a9d6f", ""]]; // low, middle, high

  function cosine(data, { left, right, edges: [low, high], smoothing, sentences, pair }, narrow) {
    const shown = [left, right], typed = data.typed[sentences];
    const rows = data.grades.map((grade) => (grade >= high ? 2 : grade < low ? 0 : 1));
    const depth = rows.map((_, place) => 0.06 + 0.2 * ((place * 0.618034) % 1));
    const all = shown.flatMap((name) => [...data.cosines[name], ...(typed ? [typed[name]] : [])]);
    const limits = [Math.max(-1, Math.floor(8 * Math.min(...all) - 1e-6) / 8), Math.min(1, Math.ceil(8 * Math.max(...all) + 1e-6) / 8)];
    let chosen = null;
    if (pair) {
      const values = data.cosines[shown[pair[0] % 2]], far = values.map((value, place) => (value - pair[1]) ** 2 + 0.02 * (rows[place] - depth[place] - pair[2]) ** 2);
      chosen = far.indexOf(Math.min(...far));
    }
    const sheet = new Sheet(narrow, 2);
    for (const name of shown) {
      const values = data.cosines[name];
      const bands = [0, 1, 2].map((row) => rows.flatMap((at, place) => (at === row ? [place] : [])));
      const ridges = bands.map((band) => (band.length ? ridge(band.map((place) => values[place]), smoothing) : []));
      const highest = Math.max(...ridges.flat().map(([, share]) => share)), power = 10 ** Math.floor(Math.log10(highest)), step = power * (highest / power >= 5 ? 5 : 1);
      const ticks = [0, 1, 2].flatMap((row) => [[row, "0"], [row + 0.62 * step / highest, general(step)]]);
      const panel = sheet.panel({ x: limits, y: [-0.34, 3.02], xlabel: "cosine", ylabel: "share of the band [% per 0.04]", yticks: ticks, title: `${name}: Spearman ${fixed(spearman(values, data.grades), 3)}, mean cosine ${fixed(mean(values), 2)}` });
      if (typed) panel.line([[typed[name], -0.34], [typed[name], 3.02]], "#222", { dash: "7 3 2 3" }); // first: words stand on it
      bands.forEach((band, row) => {
        const [colour, dash] = BANDS[row], curve = ridges[row].map(([at, share]) => [at, row + 0.62 * share / highest]);
        const own = band.map((place) => values[place]), label = [`grade < ${general(low)}`, `${general(low)} to ${general(high)}`, `grade ≥ ${general(high)}`][row];
        if (curve.length) {
          panel.line([[-1, row], ...curve, [1, row]], "none", { fill: colour, opacity: 0.2 });
          panel.line(curve, colour, { dash });
        }
        panel.dots(band.map((place) => [values[place], row - depth[place]]), colour, 3.2, 0.6);
        const rho = spearman(own, band.map((place) => data.grades[place]));
        panel.text([limits[0] + 0.015 * (limits[1] - limits[0]), row + 0.68], `${label}: ${band.length} pairs${band.length ? `, mean ${fixed(mean(own), 2)}, ρ ${Number.isFinite(rho) ? fixed(rho, 2) : "–"}` : ""}`, { plate: true });
      });
      if (chosen !== null) panel.ring([values[chosen], rows[chosen] - depth[chosen]], "#222");
      if (typed) {
        const mark = typed[name], below = values.filter((value) => value < mark).length / values.length;
        panel.text([mark, 2.9], `\u00a0these two: ${fixed(mark, 2)}, above ${fixed(100 * below, 0)} % of all\u00a0`, { anchor: mark > mean(limits) ? "end" : "start", plate: true });
      }
    }
    const listed = (cosines) => shown.map((name) => `${name} ${fixed(cosines[name], 2)}`).join("; "), told = [];
    if (typed) told.push(`The two sentences: ${listed(typed)}.`);
    if (chosen !== null) told.push(`The ringed pair, grade ${general(data.grades[chosen])}: “${data.first[chosen]}” and “${data.second[chosen]}”: ${listed(Object.fromEntries(shown.map((name) => [name, data.cosines[name][chosen]])))}.`);
    return sheet.done(told.join(" ") || `${rows.length} pairs in three bands of grades, with edges ${general(low)} and ${general(high)}. Click a dot to read its pair.`);
  }

  // ---- the cloud
  const GROUPS = [["#2a9d6f", "round"], ["#8e5bb5", "cross"], ["#49b3c9", "triangle"]];

  function anisotropy(data, { encoder, state, k, azimuth, elevation, colour }, narrow) {
    const named = ([who, how, left]) => `${who}, ${how}${left ? `, top ${left} removed` : ""}`;
    const now = [encoder, state, k], base = [data.encoders[0], "plain", 0], shape = ([who, how, left]) => data.clouds[`${who}, ${how}`].shapes[left];
    const cloud = data.clouds[`${encoder}, ${state}`], count = data.groups[colour].codes.length;
    cloud.bytes = cloud.bytes || Uint8Array.from(atob(cloud.points), (part) => part.charCodeAt(0));
    const axis = (direction) => Array.from({ length: count }, (_, place) => cloud.low[direction] + cloud.step[direction] * cloud.bytes[direction * count + place]);
    const [a, b, c] = [k, k + 1, k + 2].map(axis), names = data.groups[colour].names;
    const members = names.map((_, group) => [...data.groups[colour].codes].flatMap((code, place) => (+code === group ? [place] : [])));
    const range = (values) => [Math.min(0, ...values), Math.max(0, ...values)];
    const around = ([low, high]) => [low - 0.05 * (high - low), high + 0.05 * (high - low)];
    const [, meanCosine, uniformity, isoscore] = shape(now), sheet = new Sheet(narrow, 3);

    const flat = sheet.panel({ x: around(range(a)), y: around(range(b)), equal: true, xlabel: `direction ${k + 1}`, ylabel: `direction ${k + 2}`, title: `mean cosine ${fixed(meanCosine, 2)}, uniformity ${fixed(uniformity, 2)}` });
    members.forEach((group, number) => flat.dots(group.map((place) => [a[place], b[place]]), GROUPS[number][0], 4, 0.75, GROUPS[number][1]));
    flat.cross([0, 0]);
    names.forEach((name, number) => flat.legend(name, GROUPS[number][0], null, true, GROUPS[number][1]));

    const bounds = [a, b, c].map(range), half = Math.max(...bounds.map(([low, high]) => high - low)) / 2;
    const [az, el] = [azimuth, elevation].map((angle) => angle * Math.PI / 180);
    const seen = (point) => {
      const [x, y, z] = point.map((value, place) => (value - mean(bounds[place])) / half);
      return [-Math.sin(az) * x + Math.cos(az) * y, -Math.sin(el) * (Math.cos(az) * x + Math.sin(az) * y) + Math.cos(el) * z];
    };
    const body = sheet.panel({ x: [-1.6, 1.6], y: [-1.6, 1.6], equal: true, bare: true, title: `IsoScore ${fixed(isoscore, 3)}` });
    const corner = (bits) => bits.map((bit, place) => mean(bounds[place]) + (bit ? half : -half));
    for (const start of [0, 1, 2, 3, 4, 5, 6, 7]) {
      for (const bit of [1, 2, 4]) {
        if (start & bit) continue;
        const ends = [start, start | bit].map((number) => corner([number & 1, number & 2, number & 4]));
        body.line(ends.map(seen), start === 0 ? "#555" : "#dddddd", { width: 1 });
        if (start === 0) body.text(seen(ends[1]), `direction ${k + 1 + Math.log2(bit)}`, { anchor: "middle", size: 9, plate: true });
      }
    }
    members.forEach((group, number) => body.dots(group.map((place) => seen([a[place], b[place], c[place]])), GROUPS[number][0], 3.2, 0.75, GROUPS[number][1]));
    body.cross(seen([0, 0, 0]));

    const size = cloud.values.length, decay = sheet.panel({ x: [0, size + 1], y: [1e-3, 1.5], log: true, yticks: [[1, "1"], [0.1, "0.1"], [0.01, "0.01"], [0.001, "0.001"]], xlabel: "rank of the direction", ylabel: "singular value / largest", title: `Spearman ${fixed(shape(now)[0], 3)}` });
    const lines = named(base) === named(now) ? [[now, "#1f5fa8", "6 3"]] : [[base, "#1f5fa8", "6 3"], [now, "#e8730c", ""]];
    for (const [key, ink, dash] of lines) {
      const values = data.clouds[`${key[0]}, ${key[1]}`].values.slice(key[2]);
      decay.line(values.map((value, place) => [place + 1, Math.max(value / values[0], 1e-4)]), ink, { dash, width: 2 });
      decay.legend(named(key), ink, dash);
    }
    const keys = [base, [encoder, "plain", 0], ...(data.clouds[`untrained, ${state}`] ? [["untrained", state, k]] : [])].filter((key) => named(key) !== named(now));
    const table = new Map([...keys, now].map((key) => [named(key), shape(key)]));
    return sheet.done([...table].map(([name, [s, m, u, i]]) => `${name}: Spearman ${fixed(s, 3)}, mean cosine ${fixed(m, 3)}, uniformity ${fixed(u, 3)}, IsoScore ${fixed(i, 3)}`).join("\n"));
  }

  // ---- gradients in conflict
  const dot = (a, b) => a.reduce((sum, part, place) => sum + part * b[place], 0);
  const gramOf = (grads) => grads.map((a) => grads.map((b) => dot(a, b)));
  const mix = (weights, grads) => [0, 1].map((axis) => weights.reduce((sum, weight, place) => sum + weight * grads[place][axis], 0));
  const FLOOR = 1e-30;

  const solve = (matrix, right) => { // Gauss with pivots; null where there is no single solution
    const rows = matrix.map((row, place) => [...row, right[place]]), size = rows.length;
    for (let at = 0; at < size; at += 1) {
      const best = rows.reduce((found, row, place) => (place >= at && Math.abs(row[at]) > Math.abs(rows[found][at]) ? place : found), at);
      if (Math.abs(rows[best][at]) < 1e-12) return null;
      [rows[at], rows[best]] = [rows[best], rows[at]];
      for (let other = 0; other < size; other += 1) {
        if (other === at) continue;
        const share = rows[other][at] / rows[at][at];
        rows[other] = rows[other].map((part, place) => part - share * rows[at][place]);
      }
    }
    return rows.map((row, place) => row[size] / row[place]);
  };
  const shortest = (gram) => { // weights of the shortest mixture: every face of the triangle is tried
    const faces = gram.length === 2 ? [[0], [1], [0, 1]] : [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]];
    let best = null, least = Infinity;
    for (const face of faces) {
      const found = solve([...face.map((i) => [...face.map((j) => gram[i][j]), 1]), [...face.map(() => 1), 0]], [...face.map(() => 0), 1]);
      if (!found || face.some((_, place) => found[place] < -1e-9)) continue;
      const weights = gram.map((_, place) => (face.includes(place) ? found[face.indexOf(place)] : 0)), length = dot(weights, gram.map((row) => dot(row, weights)));
      if (length < least - 1e-12) [best, least] = [weights.map((weight) => Math.max(0, weight)), length];
    }
    return best;
  };
  const inTurn = (gram, orders, change) => { // each gradient is changed for all others, in a drawn order; the results are added up
    const total = gram.map(() => 0);
    orders[gram.length].forEach((others, i) => {
      const w = gram.map((_, place) => +(place === i));
      for (const j of others) w[j] += change(w, i, j);
      w.forEach((part, place) => { total[place] += part; });
    });
    return total;
  };
  const RULES = {
    sum: (gram) => gram.map(() => 1),
    PCGrad: (gram, _, orders) => inTurn(gram, orders, (w, i, j) => { const inner = dot(w, gram[j]); return inner < 0 && gram[j][j] > FLOOR ? -inner / gram[j][j] : 0; }),
    GradVac: (gram, target, orders) => inTurn(gram, orders, (w, i, j) => {
      const [own, other] = [dot(w, gram.map((row) => dot(row, w))), gram[j][j]];
      if (Math.min(own, other) <= FLOOR) return 0;
      const f = dot(w, gram[j]) / Math.sqrt(own * other), sinF = Math.sqrt(Math.max(1 - f * f, 0)), sinR = Math.sqrt(Math.max(1 - target * target, 1e-12));
      return f < target ? Math.sqrt(own / other) * (target * sinF - f * sinR) / sinR : 0;
    }),
    shortest: (gram) => shortest(gram).map((weight) => gram.length * weight),
  };
  const INKS = { sum: ["#1f5fa8", "6 3", "round"], PCGrad: ["#e8730c", "", "square"], GradVac: ["#8e5bb5", "7 3 2 3", "triangle"], shortest: ["#2a9d6f", "2 2", "diamond"] }; // as STEPS in minbert/explorers/conflict.py
  const cosines = (grads, step) => grads.map((grad) => { const length = Math.hypot(...grad) * Math.hypot(...step); return length > 1e-9 ? dot(grad, step) / length : 0; });

  const valley = (place, [centre, angle, along, across]) => { // -> [height, gradient]
    const [c, s] = [Math.cos(angle), Math.sin(angle)], d = [place[0] - centre[0], place[1] - centre[1]];
    const [u, v] = [c * d[0] + s * d[1], -s * d[0] + c * d[1]];
    return [0.5 * (along * u * u + across * v * v), [along * u * c - across * v * s, along * u * s + across * v * c]];
  };
  const descend = (data, start, rule, target, adam) => {
    let place = [...start], m = [0, 0], v = [0, 0];
    const path = [place], reach = 2 * data.reach;
    for (let t = 1; t <= data.steps; t += 1) {
      const grads = data.valleys.map((shape) => valley(place, shape)[1]);
      let g = mix(RULES[rule](gramOf(grads), target, data.orders), grads);
      if (adam) {
        m = m.map((part, axis) => 0.9 * part + 0.1 * g[axis]);
        v = v.map((part, axis) => 0.999 * part + 0.001 * g[axis] ** 2);
        g = m.map((part, axis) => part / (1 - 0.9 ** t) / (Math.sqrt(v[axis] / (1 - 0.999 ** t)) + 1e-8));
      }
      place = place.map((part, axis) => Math.min(reach, Math.max(-reach, part - data.rate * g[axis])));
      path.push(place);
    }
    return path;
  };
  const height = (data, place) => data.valleys.reduce((sum, shape) => sum + valley(place, shape)[0], 0);

  // Beyond the handle at the end of an arrow, on the side where the panel has room.
  function outside(grad, reach) {
    const longest = Math.max(...grad.map(Math.abs), 1e-9), room = 0.17 * reach;
    return grad.map((part) => part * (1 + (longest + room < reach ? room : -1.6 * room) / longest));
  }

  function arrows(data, { tasks, target, first, second, third }, narrow) {
    const grads = [first, second, third].slice(0, tasks === "two" ? 2 : 3), gram = gramOf(grads);
    const made = Object.fromEntries(Object.entries(RULES).map(([name, rule]) => [name, mix(rule(gram, target, data.orders), grads)]));
    const reach = Math.max(data.reach, 1.05 * Math.max(...[...grads, ...Object.values(made)].flat().map(Math.abs))), sheet = new Sheet(narrow, 2);
    const left = sheet.panel({ x: [-reach, reach], y: [-reach, reach], equal: true, xlabel: "first weight", ylabel: "second weight", title: "gradients (grey) and the steps made of them" });
    grads.forEach((grad, place) => { left.arrow([0, 0], grad, GREY); left.text(outside(grad, reach), `g${place + 1}`, { anchor: "middle" }); });
    const right = sheet.panel({ x: [-0.5, grads.length - 0.5], y: [-1.05, 1.05], xlabel: "task", ylabel: "cosine of step and gradient", title: "below 0 the step makes the task worse", xticks: grads.map((_, place) => [place, `g${place + 1}`]) });
    right.line([[-0.5, 0], [grads.length - 0.5, 0]], GREY, { width: 1.2 });
    Object.entries(made).forEach(([name, step], number) => {
      const [colour, dash, form] = INKS[name];
      left.line([[0, 0], step], colour, { dash, width: 2 });
      left.dots([step], colour, 8, 1, form);
      left.legend(name, colour, dash, false, form);
      right.dots(cosines(grads, step).map((value, place) => [place + 0.15 * (number - 1.5), value]), colour, 9, 1, form);
    });
    const pairs = grads.flatMap((_, i) => grads.slice(i + 1).map((_, j) => [i, i + 1 + j]));
    const between = pairs.map(([i, j]) => `g${i + 1} and g${j + 1} ${fixed(cosines([grads[i]], grads[j])[0], 2)}`).join(", ");
    const each = Object.entries(made).map(([name, step]) => `${name} ${cosines(grads, step).map((value) => fixed(value, 2)).join(", ")}`).join("; ");
    return sheet.done(`Cosines of the gradients: ${between}. Of each step with each gradient: ${each}.`, ["adam", "start", ...(tasks === "two" ? ["third"] : [])]);
  }

  function valleys(data, { target, adam, start }, narrow) {
    const { reach } = data, sheet = new Sheet(narrow, 2), paths = Object.keys(RULES).map((name) => [name, descend(data, start, name, target, adam)]);
    const left = sheet.panel({ x: [-reach, reach], y: [-reach, reach], equal: true, xlabel: "first weight", ylabel: "second weight", title: "two valleys, one path a rule" });
    data.valleys.forEach(([centre, angle, along, across], number) => {
      for (const level of [0.05, 0.3, 1, 3, 8]) left.ellipse(centre, [along, across].map((slope) => Math.sqrt(2 * level / slope)), angle * 180 / Math.PI, ["#888888", "#444444"][number]);
    });
    const losses = paths.map(([, path]) => path.map((place) => height(data, place))), all = losses.flat();
    const y = [Math.min(...all) / 1.2, Math.max(...all) * 1.2], powers = [-3, -2, -1, 0, 1, 2].flatMap((power) => [1, 2, 5].map((part) => part * 10 ** power));
    const right = sheet.panel({ x: [0, data.steps], y, log: true, xlabel: "step", ylabel: "sum of both losses", yticks: powers.filter((part) => part >= y[0] && part <= y[1]).map((part) => [part, general(part)]) });
    paths.forEach(([name, path], number) => {
      const [colour, dash, form] = INKS[name];
      left.line(path, colour, { dash });
      left.dots(path.filter((_, place) => place % 6 === 0), colour, 4, 1, form);
      right.line(losses[number].map((loss, place) => [place, loss]), colour, { dash, width: 2 });
      right.legend(name, colour, dash, true, form);
    });
    const ends = paths.map(([name], number) => `${name} ${fixed(losses[number].at(-1), 3)}`).join(", ");
    return sheet.done(`Sum of both losses after ${data.steps} ${adam ? "Adam" : "plain"} steps: ${ends}.`, ["tasks", "first", "second", "third"]);
  }

  const DRAW = { cosine, anisotropy, conflict: (data, values, narrow) => (values.view === "arrows" ? arrows : valleys)(data, values, narrow) };

  // Called by each explorer's own file, after explorer.js: fill the places of the page that wait for it.
  window.minbertShow = (name, told) => {
    const draw = DRAW[name.split("-")[0]]; // a chapter with numbers of its own has its number behind the name
    if (draw) told.draw = (values, narrow) => draw(told.data, values, narrow);
    for (const place of document.querySelectorAll(`.movable[data-explorer="${name}"]:empty`)) window.minbertOffline(told, place);
    window.minbertTold = { ...window.minbertTold, [name]: told };
  };
})();
