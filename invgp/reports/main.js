// Start: set up the controls and draw.
const NEAR = 9; // pixels from a site within which the pointer means the site

function start() {
  const get = (id) => document.getElementById(id);
  const survey = readSurvey(JSON.parse(get('data').textContent));
  const line = survey.coordinates.length === 1;
  const state = { site: survey.order[Math.floor((survey.count - 1) / 2)] };
  let field;
  let fit;

  function options(select, entries) {
    clear(select);
    for (const [value, text] of entries) select.add(new Option(text, value));
    select.closest('label').hidden = entries.length < 2;
  }
  const latent = () => survey.latents[get('latent').value];
  function selectedLayers(owner, select) {
    return select.value === 'all' ? owner.layers : [owner.layers[Number(select.value)]];
  }
  function layerOptions(owner, select, all) {
    const entries = owner.layers.map((layer, k) => [String(k), layer.label || owner.name]);
    options(select, all && entries.length > 1 ? [['all', 'all'], ...entries] : entries);
    select.closest('label').querySelector('span').textContent = sentenceCase(owner.dimension || 'label');
  }

  function mark() {
    field.svg.querySelectorAll('.mark').forEach((old) => old.remove());
    if (survey.count === 1) return;
    const x = field.x(survey.coordinates[0].at(state.site));
    if (line) element(field.svg, 'line', { class: 'mark', x1: x, x2: x, y1: field.box.top, y2: field.box.bottom });
    else {
      const at = { cx: x, cy: field.y(survey.coordinates[1].at(state.site)) };
      element(field.svg, 'circle', { class: 'mark', ...at, r: 8, style: 'stroke: #fff; stroke-width: 4' });
      element(field.svg, 'circle', { class: 'mark', ...at, r: 8, style: 'stroke: #000; stroke-width: 2' });
    }
  }
  function drawField() {
    const layers = selectedLayers(latent(), get('layer'));
    const quantity = get('quantity').value;
    field = line ? drawSection(get('field'), survey, latent(), layers, quantity) : drawMap(get('field'), survey, latent(), layers[0], quantity);
    const shown = layers.map((layer) => layer.label).filter(Boolean).join(', ');
    get('field').setAttribute('aria-label', `${QUANTITIES[quantity]} of ${latent().words}${shown ? `, ${shown}` : ''}, ${line ? 'along the line' : 'on a map'}. Arrow keys select a site.`);
    mark();
  }
  let whole;
  function zoom(factor, centre) {
    const [x, y] = field.window;
    whole = survey.view ? whole : field.window;
    survey.view = factor ? zoomed(field.window, centre || [(x[0] + x[1]) / 2, (y[0] + y[1]) / 2], factor, whole) : null;
    drawField();
  }
  function drawData() {
    const observation = survey.observations[get('observation').value];
    const layers = selectedLayers(observation, get('observation-layer'));
    fit = { observation, ...drawFit(get('residuals'), survey, observation, layers) };
    get('residuals').setAttribute('aria-label', `Residuals of ${observation.words} in standard deviations of the noise.`);
  }
  function choose(site) {
    state.site = site;
    get('site').value = survey.number(site);
    get('readout').textContent = describeSite(survey, latent(), selectedLayers(latent(), get('layer')), site).replace(/\n/g, ' · ');
    showSite(survey, site);
    mark();
  }
  function step(by) {
    const at = survey.order.indexOf(state.site) + by;
    choose(survey.order[Math.min(survey.count - 1, Math.max(0, at))]);
  }
  function findSite(number) {
    let best = 0;
    for (let i = 0; i < survey.count; i += 1) {
      if (Math.abs(survey.number(i) - number) < Math.abs(survey.number(best) - number)) best = i;
    }
    return best;
  }
  function siteAt(px, py) {
    if (!line) return survey.nearest(px, py, 60);
    const x = survey.coordinates[0].at;
    let [low, high] = [0, survey.count - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (field.x(x(survey.order[middle])) < px) low = middle;
      else high = middle;
    }
    const distance = (k) => Math.abs(field.x(x(survey.order[k])) - px);
    return survey.order[distance(low) <= distance(high) ? low : high];
  }
  function tip(event, text) {
    const tooltip = get('tooltip');
    tooltip.hidden = !text;
    if (!text) return;
    tooltip.textContent = text;
    const { offsetWidth, offsetHeight } = tooltip;
    tooltip.style.left = `${Math.max(4, Math.min(event.clientX + 14, document.documentElement.clientWidth - offsetWidth - 4))}px`;
    tooltip.style.top = `${event.clientY > offsetHeight + 24 ? event.clientY - offsetHeight - 12 : event.clientY + 18}px`;
  }
  function pointerPosition(host, axes, event) {
    const frame = axes.svg.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  }

  options(get('latent'), survey.latents.map((one, k) => [String(k), one.name]));
  if (!line) QUANTITIES.mean = 'Mean';
  options(get('quantity'), Object.entries(QUANTITIES).filter(([key]) => key !== 'difference' || survey.latents.every((one) => one.layers.every((layer) => Number.isFinite(layer.prior(0))))));
  layerOptions(latent(), get('layer'), line);
  get('site').max = survey.every;
  if (survey.step > 1) {
    get('thinned').hidden = false;
    get('thinned').textContent = `Of ${survey.every.toLocaleString('en')} ${survey.point.toLowerCase()}s, every ${survey.step}th is shown here; the figures and the file contain all.`;
  }
  get('explorer').hidden = false;
  get('fit-explorer').hidden = !survey.observations.length;
  if (survey.observations.length) {
    options(get('observation'), survey.observations.map((one, k) => [String(k), one.name]));
    layerOptions(survey.observations[0], get('observation-layer'), true);
    get('observation').addEventListener('change', () => {
      layerOptions(survey.observations[get('observation').value], get('observation-layer'), true);
      drawData();
    });
    get('observation-layer').addEventListener('change', drawData);
    get('residuals').addEventListener('pointermove', (event) => {
      const found = fit.nearest(...pointerPosition(get('residuals'), fit.axes, event));
      tip(event, found && describeDatum(survey, fit.observation, found));
      if (found) get('fit-readout').textContent = describeDatum(survey, fit.observation, found).replace(/\n/g, ' · ');
    });
    get('residuals').addEventListener('pointerleave', (event) => tip(event, ''));
    drawData();
  }
  get('latent').addEventListener('change', () => {
    layerOptions(latent(), get('layer'), line);
    drawField();
    choose(state.site);
  });
  for (const id of ['layer', 'quantity']) {
    get(id).addEventListener('change', () => {
      drawField();
      choose(state.site);
    });
  }
  get('site').addEventListener('change', () => choose(findSite(Number(get('site').value))));
  get('previous').addEventListener('click', () => step(-1));
  get('next').addEventListener('click', () => step(1));
  get('field').addEventListener('keydown', (event) => {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (by) {
      event.preventDefault();
      step(by);
    }
  });
  get('field').addEventListener('pointermove', (event) => {
    const [px, py] = pointerPosition(get('field'), field, event);
    const layers = selectedLayers(latent(), get('layer'));
    const site = line ? siteAt(px, py) : survey.nearest(px, py, NEAR);
    if (!line && site < 0) {
      tip(event, describePlace(survey, latent(), layers[0], get('quantity').value, field, px, py));
      return;
    }
    tip(event, site >= 0 ? describeSite(survey, latent(), selectedLayers(latent(), get('layer')), site) : '');
  });
  get('zoom').hidden = line || survey.count < 2;
  get('zoom-in').addEventListener('click', () => zoom(0.5, survey.coordinates.slice(0, 2).map((one) => one.at(state.site))));
  get('zoom-out').addEventListener('click', () => zoom(2));
  get('zoom-all').addEventListener('click', () => zoom(0));
  get('field').addEventListener('dblclick', (event) => {
    const [px, py] = pointerPosition(get('field'), field, event);
    if (!line) zoom(0.5, [field.x.invert(px), field.y.invert(py)]);
  });
  get('field').addEventListener('pointerleave', (event) => tip(event, ''));
  get('field').addEventListener('click', (event) => {
    const site = siteAt(...pointerPosition(get('field'), field, event));
    if (site >= 0) choose(site);
  });
  for (const button of document.querySelectorAll('.copy')) {
    button.hidden = !navigator.clipboard;
    button.addEventListener('click', async () => {
      await navigator.clipboard.writeText(get(button.dataset.copy).textContent);
      button.textContent = 'Copied';
    });
  }
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(get('field').clientWidth - width) < 2) return;
    width = get('field').clientWidth;
    drawField();
    if (survey.observations.length) drawData();
  }).observe(get('field'));
  width = get('field').clientWidth;
  drawField();
  choose(state.site);
}

start();
