// Data fit: residuals along a line, or against the predicted values.
function drawFit(host, survey, observation, layers) {
  const { order, count } = survey;
  const normalised = (layer) => (i) => (layer.observed(i) - layer.predicted(i)) / layer.noise(i);
  const values = layers.map(normalised);
  const [low, high] = extent(count, ...values);
  const most = Math.max(3, 1.08 * Math.max(Math.abs(low), Math.abs(high)));
  const line = survey.coordinates.length === 1;
  const across = (layer) => (line ? survey.coordinates[0].at : layer.predicted);
  const unit = observation.unit ? ` (${observation.unit})` : '';
  const axes = new Axes(host, {
    x: pad(extent(count, ...layers.map(across)), 0.02),
    y: [-most, most],
    xLabel: line ? coordinateLabel(survey.coordinates[0]) : sentenceCase(`predicted ${observation.words}${unit}`),
    yLabel: 'Residual / noise std',
    height: 250,
  });
  const { left, right } = axes.box;
  const strip = { x: left, width: right - left, y: axes.y(1.96), height: axes.y(-1.96) - axes.y(1.96), fill: 'currentColor', 'fill-opacity': 0.08 };
  element(axes.plot, 'rect', strip);
  element(axes.plot, 'line', { class: 'axis', x1: left, x2: right, y1: axes.y(0), y2: axes.y(0) });
  layers.forEach((layer, k) => axes.dots(order, across(layer), values[k], layer.colour));
  return { axes, nearest: (px, py) => nearestDot(axes, order, layers, across, values, px, py) };
}

function nearestDot(axes, order, layers, across, values, px, py) {
  let best = null;
  let least = 24 * 24;
  layers.forEach((layer, k) => {
    const x = across(layer);
    for (const i of order) {
      const distance = (axes.x(x(i)) - px) ** 2 + (axes.y(values[k](i)) - py) ** 2;
      if (distance < least) [least, best] = [distance, { site: i, layer, value: values[k](i) }];
    }
  });
  return best;
}

function describeDatum(survey, observation, { site, layer, value }) {
  const label = layer.label ? `${observation.name}, ${layer.label}` : observation.name;
  const one = (at) => appendUnit(formatRounded(at(site), layer.noise(site)), observation.unit);
  return `Site ${survey.number(site)}\n${label}: observed ${one(layer.observed)}, predicted ${one(layer.predicted)}\nresidual ${hundredths(value)} noise std`;
}
