// Axes: an SVG with scales, ticks and labels, to draw in.
const SVG = 'http://www.w3.org/2000/svg';

function element(parent, name, attributes = {}, text = '') {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function clear(host) {
  while (host.firstChild) host.removeChild(host.firstChild);
  return host;
}

class Axes {
  constructor(host, { x, y, xLabel, yLabel, down = false, right = 14, height }) {
    clear(host);
    this.width = Math.max(260, host.clientWidth - 13);
    this.height = height || Math.round(Math.min(430, Math.max(250, this.width * 0.5)));
    const yTicks = ticks(...y, this.height / 55);
    const longest = Math.max(...yTicks.map((tick) => tick.text.length));
    this.box = { left: 34 + 7.2 * longest, right: this.width - right, top: 14, bottom: this.height - 46 };
    this.x = this.scale(x, this.box.left, this.box.right);
    this.y = down ? this.scale(y, this.box.top, this.box.bottom) : this.scale(y, this.box.bottom, this.box.top);
    this.svg = element(host, 'svg', { width: this.width, height: this.height, viewBox: `0 0 ${this.width} ${this.height}`, 'aria-hidden': 'true' });
    const room = 8 * Math.max(...ticks(...x, 5).map((tick) => tick.text.length)) + 24;
    this.frame(ticks(...x, (this.box.right - this.box.left) / room), yTicks, xLabel, yLabel);
    const clip = `clip-${host.id}`;
    const { left, right: end, top, bottom } = this.box;
    element(element(element(this.svg, 'defs'), 'clipPath', { id: clip }), 'rect', { x: left, y: top, width: end - left, height: bottom - top });
    this.plot = element(this.svg, 'g', { 'clip-path': `url(#${clip})` });
  }

  scale([low, high], from, to) {
    const factor = (to - from) / (high - low);
    const scale = (value) => from + (value - low) * factor;
    scale.invert = (pixel) => low + (pixel - from) / factor;
    return scale;
  }

  frame(xTicks, yTicks, xLabel, yLabel) {
    const { left, right, top, bottom } = this.box;
    for (const tick of xTicks) {
      element(this.svg, 'line', { class: 'grid', x1: this.x(tick.value), x2: this.x(tick.value), y1: top, y2: bottom });
      element(this.svg, 'text', { x: this.x(tick.value), y: bottom + 16, 'text-anchor': 'middle' }, tick.text);
    }
    for (const tick of yTicks) {
      element(this.svg, 'line', { class: 'grid', x1: left, x2: right, y1: this.y(tick.value), y2: this.y(tick.value) });
      element(this.svg, 'text', { x: left - 6, y: this.y(tick.value) + 4, 'text-anchor': 'end' }, tick.text);
    }
    element(this.svg, 'path', { class: 'axis', d: `M${left} ${top}V${bottom}H${right}` });
    this.label({ x: (left + right) / 2, y: this.height - 8 }, xLabel, right - left);
    const middle = (top + bottom) / 2;
    this.label({ x: 13, y: middle, transform: `rotate(-90 13 ${middle})` }, yLabel, bottom - top);
  }

  label(place, text, room) {
    const [, words, unit] = /^(.*?)( \([^()]*\))?$/s.exec(text); // a long label is cut before its unit
    const letters = Math.max(4, Math.floor(room / 6.4) - (unit || '').length);
    const shown = words.length > letters ? `${words.slice(0, letters - 1)}…` : words;
    element(this.svg, 'text', { ...place, 'text-anchor': 'middle' }, shown + (unit || ''));
  }

  // Draw a line through the sites in this order, with gaps at missing values.
  line(order, x, y, attributes) {
    let pen = 'M';
    const parts = [];
    for (const i of order) {
      const height = this.y(y(i));
      if (Number.isFinite(height)) parts.push(`${pen}${this.x(x(i)).toFixed(1)} ${height.toFixed(1)}`);
      pen = Number.isFinite(height) ? 'L' : 'M';
    }
    return element(this.plot, 'path', { d: parts.join('') || 'M0 0', fill: 'none', ...attributes });
  }

  // Draw the band between two lines; a single site has a bar.
  band(order, x, low, high, attributes) {
    const finite = order.filter((i) => Number.isFinite(low(i)) && Number.isFinite(high(i)));
    const point = (i, y) => `${this.x(x(i)).toFixed(1)} ${this.y(y(i)).toFixed(1)}`;
    if (finite.length === 1) {
      return element(this.plot, 'path', { d: `M${point(finite[0], low)}L${point(finite[0], high)}`, stroke: attributes.fill, 'stroke-opacity': attributes['fill-opacity'], 'stroke-width': 9 });
    }
    const there = finite.map((i) => point(i, high)).join('L');
    const back = [...finite].reverse().map((i) => point(i, low)).join('L');
    return element(this.plot, 'path', { d: finite.length ? `M${there}L${back}Z` : 'M0 0', ...attributes });
  }

  // Draw dots as strokes without length: thousands of them are one element.
  dots(order, x, y, colour, size = 4) {
    const parts = [];
    for (const i of order) {
      if (Number.isFinite(y(i)) && Number.isFinite(x(i))) parts.push(`M${this.x(x(i)).toFixed(1)} ${this.y(y(i)).toFixed(1)}h0`);
    }
    element(this.plot, 'path', { d: parts.join('') || 'M0 0', stroke: colour, 'stroke-width': size, 'stroke-linecap': 'round', fill: 'none' });
  }
}
