// Fields: their data, and figures of a latent along a line, or on a map.
function readSurvey(data) {
  const unpackKeys = (one, keys) => ({ ...one, ...Object.fromEntries(keys.map((key) => [key, unpack(one[key])])) });
  const withLayers = (one, keys) => ({ ...one, layers: one.layers.map((layer) => unpackKeys(layer, keys)) });
  const coordinates = data.coordinates.map((one) => ({ ...one, at: unpack(one.values, one.origin) }));
  const order = Array.from({ length: data.count }, (_, i) => i);
  if (coordinates.length === 1) order.sort((a, b) => coordinates[0].at(a) - coordinates[0].at(b));
  return {
    ...data,
    coordinates,
    order,
    number: unpack(data.sites),
    latents: data.latents.map((one) => withLayers(one, ['mean', 'std', 'low', 'high', 'prior', 'priorStd', 'priorLow', 'priorHigh', 'information'])),
    between: data.between && { ...data.between, latents: data.between.latents.map((layers) => layers.map((layer) => unpackKeys(layer, ['mean', 'std', 'prior', 'information']))) },
    observations: data.observations.map((one) => withLayers(one, ['observed', 'noise', 'predicted', 'predictedStd'])),
    correlation: data.correlation && new Int8Array(decodeBytes(data.correlation).buffer),
  };
}

const QUANTITIES = {
  mean: 'Mean and 95% interval',
  std: 'Standard deviation',
  difference: 'Posterior minus prior mean',
  information: 'Information',
};

function quantityValues(layer, quantity) {
  return quantity === 'difference' ? (i) => layer.mean(i) - layer.prior(i) : layer[quantity];
}

function quantityLabel(latent, quantity) {
  if (quantity === 'information') return 'Information';
  const words = quantity === 'mean' ? latent.words : QUANTITIES[quantity];
  return latent.unit ? `${words} (${latent.unit})` : words;
}

function sentenceCase(text) {
  return text.length > 2 ? text[0].toUpperCase() + text.slice(1) : text;
}

function coordinateLabel(coordinate) {
  return sentenceCase(coordinate.unit ? `${coordinate.name} (${coordinate.unit})` : coordinate.name);
}

// Section: all selected layers, with the 95% intervals of posterior and prior for the mean.
function drawSection(host, survey, latent, layers, quantity) {
  const { order, count } = survey;
  const x = survey.coordinates[0].at;
  const shown = layers.map((layer) => quantityValues(layer, quantity));
  const banded = quantity === 'mean' ? layers.flatMap((layer) => [layer.low, layer.high]) : [];
  let range = pad(extent(count, ...shown, ...banded));
  if (quantity === 'information') range = [0, 1];
  if (quantity === 'std') range = [0, range[1]];
  const axes = new Axes(host, {
    x: pad(extent(count, x), count > 1 ? 0.01 : 0),
    y: range,
    xLabel: coordinateLabel(survey.coordinates[0]),
    yLabel: sentenceCase(quantityLabel(latent, quantity)),
    down: latent.down && quantity === 'mean',
    right: layers.some((layer) => layer.label) ? 74 : 14,
  });
  layers.forEach((layer, k) => {
    if (quantity === 'mean') {
      axes.band(order, x, layer.low, layer.high, { fill: layer.colour, 'fill-opacity': 0.25 });
      hatchBand(axes, survey, layer);
      axes.line(order, x, layer.prior, { stroke: layer.colour, 'stroke-dasharray': '6 4', 'stroke-width': 1 });
      for (const end of [layer.priorLow, layer.priorHigh]) axes.line(order, x, end, { stroke: layer.colour, 'stroke-dasharray': '1 4', 'stroke-width': 1 });
    }
    axes.line(order, x, shown[k], { stroke: layer.colour, 'stroke-width': 1.8 });
    if (count === 1) axes.dots(order, x, shown[k], layer.colour, 8);
  });
  nameLayers(axes, layers, shown, order);
  return axes;
}

function hatchBand(axes, survey, layer) {
  const poor = (i) => layer.information(i) < survey.hatchBelow;
  const only = (edge) => (i) => (poor(i) ? edge(i) : NaN);
  if (survey.count < 2 || !survey.order.some(poor)) return;
  const id = `hatch-${layer.colour.slice(1)}`;
  const pattern = element(axes.svg.querySelector('defs'), 'pattern', { id, width: 7, height: 7, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' });
  element(pattern, 'line', { x1: 0, y1: 0, x2: 0, y2: 7, stroke: layer.colour, 'stroke-width': 1.2, 'stroke-opacity': 0.6 });
  // One band per stretch of neighbouring sites with little information.
  let stretch = [];
  for (const i of [...survey.order, -1]) {
    if (i >= 0 && poor(i)) stretch.push(i);
    else if (stretch.length) {
      if (stretch.length > 1) axes.band(stretch, survey.coordinates[0].at, only(layer.low), only(layer.high), { fill: `url(#${id})` });
      stretch = [];
    }
  }
}

// Labels of the layers at the right, moved apart.
function nameLayers(axes, layers, shown, order) {
  const named = layers.map((layer, k) => ({ layer, y: axes.y(shown[k](order[order.length - 1])) }));
  let last = -Infinity;
  for (const { layer, y } of named.filter((one) => Number.isFinite(one.y)).sort((a, b) => a.y - b.y)) {
    last = Math.max(y, last + 14);
    const text = layer.label.length > 10 ? `${layer.label.slice(0, 9)}…` : layer.label;
    element(axes.svg, 'text', { x: axes.box.right + 5, y: last + 4, style: `fill: ${layer.colour}; font-weight: 600` }, text);
  }
}

// Map: each point has the colour of the field, or of the nearest site if the field between the sites is unknown.
function drawMap(host, survey, latent, layer, quantity) {
  const [across, up] = survey.coordinates;
  const drawn = survey.between ? survey.between.latents[survey.latents.indexOf(latent)][latent.layers.indexOf(layer)] : layer;
  const count = survey.between ? survey.between.across.count * survey.between.up.count : survey.count;
  const values = quantityValues(drawn, quantity);
  const [x, y] = mapWindow(survey, host);
  const axes = new Axes(host, {
    x, y, xLabel: coordinateLabel(across), yLabel: coordinateLabel(up), right: 106, height: survey.mapHeight,
  });
  const range = colourRange(count, values, quantity);
  const colour = palette(latent.down && quantity === 'mean' ? [...survey.palettes.mean].reverse() : survey.palettes[quantity]);
  const share = (value) => (value - range[0]) / (range[1] - range[0]);
  survey.nearest = nearestSite(survey, axes);
  const [shown, informed] = [values, drawn.information].map((one) => (survey.between ? interpolate(survey.between, axes, one) : nearestValue(survey, axes, one)));
  paint(host, axes, (px, py) => (Number.isFinite(shown(px, py)) ? colour(share(shown(px, py))) : null), (px, py) => informed(px, py) < survey.hatchBelow);
  if (survey.count <= 3000) {
    for (const [size, ink] of survey.count <= 200 ? [[6, '#000'], [4.2, '#fff']] : [[3.4, '#fff'], [2, '#000']]) axes.dots(survey.order, across.at, up.at, ink, size);
  }
  colourBar(axes, range, colour, latent.down && quantity === 'mean', sentenceCase(quantityLabel(latent, quantity)));
  Object.assign(axes, { window: [x, y], valueAt: shown });
  return axes;
}

// Return the part of a map around a point, smaller or larger by a factor; null for the whole map.
function zoomed(window, [cx, cy], factor, whole) {
  if (window[0][1] - window[0][0] > (whole[0][1] - whole[0][0]) / factor / 1.01) return null;
  return [cx, cy].map((centre, k) => {
    const half = ((window[k][1] - window[k][0]) * factor) / 2;
    const middle = Math.min(Math.max(centre, whole[k][0] + half), whole[k][1] - half);
    return [middle - half, middle + half];
  });
}

// Text about a place of a map: its coordinates, and the value there.
function describePlace(survey, latent, layer, quantity, axes, px, py) {
  const value = axes.valueAt(px, py);
  if (!Number.isFinite(value)) return '';
  const place = [axes.x.invert(px), axes.y.invert(py)].map((at, k) => `${survey.coordinates[k].name} ${appendUnit(formatNumber(at), survey.coordinates[k].unit)}`);
  const name = [latent.name, layer.label].filter(Boolean).join(', ');
  const words = quantity === 'mean' ? '' : `${QUANTITIES[quantity].toLowerCase()} `;
  return `${place.join(', ')}\n${name}: ${words}${appendUnit(formatNumber(value), quantity === 'information' ? '' : latent.unit)}`;
}

function colourRange(count, values, quantity) {
  if (quantity === 'information') return [0, 1];
  const [low, high] = extent(count, values);
  if (quantity === 'difference') {
    const largest = Math.max(Math.abs(low), Math.abs(high)) || 1;
    return [-largest, largest];
  }
  return low < high ? [low, high] : pad([low, high]);
}

// Ends of the axes of a map: equal scales, as wide as the page.
function mapWindow(survey, host) {
  const [across, up] = survey.coordinates;
  const width = Math.max(260, host.clientWidth - 13) - 182;
  const [x, y] = (!survey.between && cellEnds(survey)) || [across.at, up.at].map((at) => pad(extent(survey.count, at), 0.05));
  const degrees = /°N/.test(up.unit) ? Math.cos((((y[0] + y[1]) / 2) * Math.PI) / 180) || 1 : 1;
  const perPixel = Math.max(((x[1] - x[0]) * degrees) / width, (y[1] - y[0]) / 480);
  const height = Math.max(180, Math.min(480, (y[1] - y[0]) / perPixel));
  survey.mapHeight = Math.round(height) + 60;
  if (survey.view) return survey.view;
  const widen = ([low, high], span) => [(low + high - span) / 2, (low + high + span) / 2];
  return [widen(x, Math.max(x[1] - x[0], (perPixel * width) / degrees)), widen(y, Math.max(y[1] - y[0], perPixel * height))];
}

// Outer edges of the cells of a grid; null if the sites do not form a complete grid.
function cellEnds(survey) {
  const lines = survey.coordinates.slice(0, 2).map(({ at }) => [...new Set(survey.order.map(at))].sort((a, b) => a - b));
  if (lines.some((line) => line.length < 2) || lines[0].length * lines[1].length !== survey.count) return null;
  return lines.map((line) => [1.5 * line[0] - 0.5 * line[1], 1.5 * line.at(-1) - 0.5 * line.at(-2)]);
}

// Return a function from pixels to the nearest site, which searches in buckets.
function nearestSite(survey, axes) {
  const [across, up] = survey.coordinates;
  const size = Math.max(8, Math.sqrt(((axes.box.right - axes.box.left) * (axes.box.bottom - axes.box.top)) / survey.count));
  const buckets = new Map();
  const places = survey.order.map((i) => [axes.x(across.at(i)), axes.y(up.at(i)), i]).filter(([px, py]) => Number.isFinite(px + py));
  for (const place of places) {
    const key = `${Math.floor(place[0] / size)},${Math.floor(place[1] / size)}`;
    if (!buckets.has(key)) buckets.set(key, []);
    buckets.get(key).push(place);
  }
  return (px, py, reach) => {
    let best = -1;
    let least = reach * reach;
    const [column, row, rings] = [Math.floor(px / size), Math.floor(py / size), Math.ceil(reach / size)];
    for (let ring = 0; ring <= rings && (ring - 1) * size < Math.sqrt(least); ring += 1) {
      for (let c = column - ring; c <= column + ring; c += 1) {
        for (let r = row - ring; r <= row + ring; r += r === row - ring || r === row + ring || Math.abs(c - column) === ring ? 1 : 2 * ring - 1) {
          for (const place of buckets.get(`${c},${r}`) || []) {
            const distance = (place[0] - px) ** 2 + (place[1] - py) ** 2;
            if (distance < least) [least, best] = [distance, place[2]];
          }
        }
      }
    }
    return best;
  };
}

// Functions from pixels to a value: of the nearest site, unless it is far or outside the grid; or interpolated between four
// points of a grid.
function nearestValue(survey, axes, values) {
  const [x, y] = survey.coordinates.map((one, k) => extent(survey.count, (i) => [axes.x, axes.y][Math.min(k, 1)](one.at(i))));
  const reach = Math.min(90, 1.1 * Math.sqrt(((x[1] - x[0]) * (y[1] - y[0])) / survey.count) + 8);
  const ends = cellEnds(survey);
  const within = (at, [low, high]) => at >= low && at <= high;
  const outside = (px, py) => ends && !(within(axes.x.invert(px), ends[0]) && within(axes.y.invert(py), ends[1]));
  return (px, py) => {
    const site = outside(px, py) ? -1 : survey.nearest(px, py, ends ? 1e3 : reach);
    return site >= 0 ? values(site) : NaN;
  };
}

function interpolate({ across, up }, axes, values) {
  const place = (at, { from, to, count }) => ((at - from) / (to - from)) * (count - 1);
  return (px, py) => {
    const [c, r] = [place(axes.x.invert(px), across), place(axes.y.invert(py), up)];
    if (!(c >= 0 && r >= 0 && c <= across.count - 1 && r <= up.count - 1)) return NaN;
    const [column, row] = [Math.min(Math.floor(c), across.count - 2), Math.min(Math.floor(r), up.count - 2)];
    const along = (one) => values(one * across.count + column) * (column + 1 - c) + values(one * across.count + column + 1) * (c - column);
    return along(row) * (row + 1 - r) + along(row + 1) * (r - row);
  };
}

function paint(host, axes, colourAt, isPoor) {
  const { left, right, top, bottom } = axes.box;
  const [columns, rows] = [Math.floor((right - left) / 2), Math.floor((bottom - top) / 2)];
  const canvas = document.createElement('canvas');
  Object.assign(canvas, { width: columns, height: rows });
  Object.assign(canvas.style, { left: `${left + 6.4}px`, top: `${top + 6.4}px`, width: `${columns * 2}px`, height: `${rows * 2}px` });
  canvas.setAttribute('aria-hidden', 'true');
  const context = canvas.getContext('2d');
  const image = context.createImageData(columns, rows);
  for (let r = 0; r < rows; r += 1) {
    for (let c = 0; c < columns; c += 1) {
      const at = [left + 2 * c + 1, top + 2 * r + 1];
      const colour = colourAt(...at);
      if (colour) {
        const dark = (c + r) % 7 === 0 && isPoor(...at) ? 0.35 : 1;
        image.data.set([colour[0] * dark, colour[1] * dark, colour[2] * dark, 255], 4 * (r * columns + c));
      }
    }
  }
  context.putImageData(image, 0, 0);
  host.insertBefore(canvas, axes.svg);
  axes.svg.style.position = 'relative';
}

function colourBar(axes, range, colour, down, label) {
  const { right, top, bottom } = axes.box;
  const steps = 60;
  const step = (bottom - top) / steps;
  for (let k = 0; k < steps; k += 1) {
    const share = down ? k / (steps - 1) : 1 - k / (steps - 1);
    element(axes.svg, 'rect', { x: right + 12, y: top + k * step, width: 12, height: step + 0.6, fill: `rgb(${colour(share).join(',')})` });
  }
  const scale = down ? axes.scale(range, top, bottom) : axes.scale(range, bottom, top);
  for (const tick of ticks(...range, (bottom - top) / 45)) {
    element(axes.svg, 'text', { x: right + 29, y: scale(tick.value) + 4 }, tick.text);
  }
  const [x, middle] = [right + 96, (top + bottom) / 2];
  axes.label({ x, y: middle, transform: `rotate(-90 ${x} ${middle})` }, label, bottom - top);
}
